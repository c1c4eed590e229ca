"""Notifiers: who is told of an alert, one module for each way."""
