"""Where SGLang is installed, found without importing it."""
