"""What is changed in SGLang: one module per patch; `registry` finds them.

A patch module has

- a docstring whose first line says what the patch gives;
- `EDITS`, the edits that make it; an edit that does not hold for every supported SGLang
  says from which release (`since`) until which (`until`) it does;
- `RESPONSE_FIELDS`, the names of the fields that it adds to answers.
"""
