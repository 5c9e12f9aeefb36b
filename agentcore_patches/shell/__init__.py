"""Options, output and exit codes that all commands share."""
