"""Tinker."""
