"""The dual pipeline of an RL trainer: its context, categories, step fields, labels and evaluations."""
