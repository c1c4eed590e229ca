"""tensorboard."""
