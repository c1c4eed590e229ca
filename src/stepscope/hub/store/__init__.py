"""The store: a columnar database of records behind a thin engine port; the only folder that knows SQL."""
