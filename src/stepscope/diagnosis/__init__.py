"""Streaming diagnosis: finds what went wrong in a run from its records. Pure: no I/O and no clock."""
