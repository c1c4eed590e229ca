"""The sets of real trainings, in the order in which they were written; each registers its cases when it is imported."""
