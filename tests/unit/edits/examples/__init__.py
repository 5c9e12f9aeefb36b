"""Examples of each kind of edit on small sources; `tables.examples` parses them."""
