"""Notifiers: where notifications are sent, one module for each kind."""
