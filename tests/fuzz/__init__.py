"""Fuzzing of every decoder: `python -m tests.fuzz NAME -max_total_time=600`."""
