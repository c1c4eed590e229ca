"""Alerts: rules over metrics and findings, the states of alerts, and notifiers."""
