"""The receiver of Tinker clients: their telemetry, a stand-in for the service, and a proxy in front of one."""
