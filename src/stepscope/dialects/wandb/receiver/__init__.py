"""The receiver of unmodified Weights & Biases clients: what they log and what they query."""
