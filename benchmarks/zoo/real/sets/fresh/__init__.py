"""A set of tasks with losses in parts: diffusion, contrasts, graphs, experts, clicks."""
