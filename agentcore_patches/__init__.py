"""Exact token IDs for RL trainers from an installed SGLang v0.5.9."""
