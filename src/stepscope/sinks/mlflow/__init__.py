"""A tracking server of MLflow: its runs, and its traces."""
