"""Stepscope against its peers: one run, one machine, ratios."""
