"""The tenth set: faults that are hard to see, a third of them faults of time."""
