"""A run watched from its folder alone: what came is folded into little, and drawn on a terminal."""
