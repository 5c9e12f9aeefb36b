"""From an install's sources to the files to be written. Pure: writes nothing."""
