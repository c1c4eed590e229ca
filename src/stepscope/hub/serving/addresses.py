"""Addresses on which a hub listens."""

import socket

from stepscope.model.errors import ConfigError

_LAST_PORT = 65535


def listen(host: str, port: int, option: str) -> socket.socket:
    """Take a TCP port; ConfigError names the option when it cannot be used."""
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"{option} {port} is not a valid port: choose one up to {_LAST_PORT}, or 0 for a free one")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, so that asyncio knows the protocol and sends each answer without waiting for the ack of its headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"port {port} on {host} cannot be used ({error.strerror or error}): stop what uses it "
            f"or choose another with {option}"
        ) from error
    return listener


def bracketed(host: str) -> str:
    """Write a host as URLs have it."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
