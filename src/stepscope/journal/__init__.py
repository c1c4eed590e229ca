"""The buffer that matters: append-only segments on disk, one folder per writer."""
