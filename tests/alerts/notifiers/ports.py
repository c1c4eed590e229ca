"""Ports for the servers that notifiers are tested against."""

import contextlib
import socket


def free_port() -> int:
    """A port without a listener."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
