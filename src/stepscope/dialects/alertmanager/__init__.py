"""Alertmanager."""
