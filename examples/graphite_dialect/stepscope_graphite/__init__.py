"""Graphite's plaintext protocol as a dialect of Stepscope."""
