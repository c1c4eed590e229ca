"""Alerts in the hub: rules are evaluated as records are stored; alerts, silences and marks survive a restart."""
