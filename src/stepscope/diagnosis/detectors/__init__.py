"""The built-in detectors, one module per family of faults."""
