"""Alerts in the hub: rules are evaluated as records are stored, and alerts, silences and marks outlive the hub."""
