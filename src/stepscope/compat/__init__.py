"""Interfaces of other libraries, so that existing scripts need only change an import."""
