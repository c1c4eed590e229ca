"""Runs recorded by other tools, read from their files and written as journals."""
