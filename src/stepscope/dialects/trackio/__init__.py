"""trackio."""
