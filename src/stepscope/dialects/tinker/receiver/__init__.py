"""The receiver of Tinker clients: telemetry, a minimal service for it, and a proxy in front of a real service."""
