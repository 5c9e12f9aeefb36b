"""Proves on a live server that a patched SGLang gives what it promises."""
