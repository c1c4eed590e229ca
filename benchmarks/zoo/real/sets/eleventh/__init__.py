"""The eleventh set: one accident in the middle of a training, in the names of some twenty trainers."""
