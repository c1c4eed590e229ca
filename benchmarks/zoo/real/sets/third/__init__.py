"""The third set: trainings as users write them, from the documentation alone."""
