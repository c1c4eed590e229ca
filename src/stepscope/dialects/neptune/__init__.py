"""neptune."""
