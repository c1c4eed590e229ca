"""Takes what unmodified Weights & Biases clients send, and answers what they ask."""
