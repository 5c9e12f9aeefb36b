"""The command: it parses, calls `api`, and shows what came of it."""
