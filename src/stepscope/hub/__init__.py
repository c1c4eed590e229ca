"""The hub: receives every dialect, keeps the records in one store and shows them on one page."""
