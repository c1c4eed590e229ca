"""Endpoints of alerts: their rules, their states, and the snapshot of each."""
