"""A run followed from its folder alone: its records are summarised and drawn on a terminal."""
