"""The changes of SGLang: one module per patch; `registry` finds them.

A patch module has

- a docstring whose first line says what the patch gives;
- `HOOKS`, its changes of SGLang, each with the edit that every release needs there;
- `RESPONSE_FIELDS`, the names of the fields that it adds to answers;
- `REQUEST_FLAGS`, the names of the boolean fields that it adds to requests, if any.
"""
