"""The command: it parses its arguments, calls `api`, and shows the result."""
