"""For your own tests: a run in a temporary home, and what it recorded."""

from stepscope.testing.journals import Recording, read_batches, read_run, recorded, series

__all__ = ["Recording", "read_batches", "read_run", "recorded", "series"]
