"""chrome."""
