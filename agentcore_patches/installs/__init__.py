"""Find an SGLang install without importing it."""
