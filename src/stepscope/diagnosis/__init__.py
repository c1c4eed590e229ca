"""Diagnosis: name what went wrong in a run from its records, as they arrive. Pure: no I/O, no clock of its own."""
