"""Detectors of values, one file for each family: what it watches, its state, its verdict, its words."""
