"""One folder for each foreign system, always with the same file names; `dialect.py` declares what it has."""
