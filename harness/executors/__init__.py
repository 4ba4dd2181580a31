"""Where runs run: an interface, and one module for each kind of place."""
