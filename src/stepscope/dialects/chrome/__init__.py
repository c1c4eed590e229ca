"""Chrome's trace files."""
