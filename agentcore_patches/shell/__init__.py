"""What all commands share: options, output and exit codes."""
