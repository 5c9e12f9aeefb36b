"""What each kind of edit does to small sources; `tables.examples` says how to read them."""
