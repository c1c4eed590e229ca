"""Where records go from the journal: one file for each destination, all behind one shape."""
