"""A small real training with things that go wrong on purpose, to look at."""
