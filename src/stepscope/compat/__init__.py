"""Other libraries' interfaces on top of a run, so that existing scripts move by one import."""
