"""The training process: records go in, frames go out, and no error reaches the training loop."""
