"""Plan the files to write from an install's sources. Writes nothing."""
