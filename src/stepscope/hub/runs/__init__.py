"""What the hub knows of a run beside its records: its state, its files, and how it is deleted."""
