"""The code that lands in SGLang, as ordinary typed Python."""
