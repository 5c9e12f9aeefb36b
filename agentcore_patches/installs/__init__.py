"""Find the SGLang install without importing it."""
