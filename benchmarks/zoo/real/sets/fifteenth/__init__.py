"""The fifteenth set: forty trainings in the names of many trainers in which nothing is wrong."""
