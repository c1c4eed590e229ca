"""The training process: records go in, frames go out, nothing comes back to hurt the loop."""
