"""The machinery of the overlay: what serves the patched modules, checks them, and tells of them."""
