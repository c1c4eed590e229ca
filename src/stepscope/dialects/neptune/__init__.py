"""Neptune."""
