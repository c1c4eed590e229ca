"""The eighth set: each training logs in the manner and the names of another framework."""
