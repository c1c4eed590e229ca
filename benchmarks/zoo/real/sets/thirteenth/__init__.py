"""The thirteenth set: faults from the start and accidents in the middle, of the training and of its process."""
