"""A run drawn on a terminal while it is followed, from its journals or from a hub."""
