"""Where records go from the journal: one module for each destination, all with the same interface."""
