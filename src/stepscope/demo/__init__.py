"""A small real training on several ranks and a small PPO, with things that go wrong on purpose, to look at."""
