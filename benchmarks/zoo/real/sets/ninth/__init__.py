"""The ninth set: what is trained in 2026."""
