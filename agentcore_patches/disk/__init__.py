"""Read and write files, their owners and JSON; knows nothing of SGLang."""
