"""The changes of SGLang: a folder for the core and one for each extra.

A folder's `__init__` has

- a docstring whose first line says what it gives;
- `HOOKS`, its changes of SGLang, each with the edit that every release needs there;
- `RESPONSE_FIELDS`, the names of the fields that it adds to responses.
"""
