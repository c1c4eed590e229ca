"""alertmanager."""
