"""Readings of the machine and the process: what can be read here, and one thread that reads it."""
