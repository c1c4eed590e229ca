"""The sixth set: troubles that people reported in public, each beside the same training without it."""
