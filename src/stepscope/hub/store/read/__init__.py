"""Questions to the store, as typed functions of an engine."""
