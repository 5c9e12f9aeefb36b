"""Checks on a real server that a patched SGLang does what the patches promise."""
