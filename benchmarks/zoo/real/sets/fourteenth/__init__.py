"""The fourteenth set: what is trained day by day, in the names of the trainers of 2026, with mistakes and accidents."""
