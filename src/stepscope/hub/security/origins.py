"""Which hosts and origins may speak to the hub: no web page reaches it through a visitor's browser."""

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Tell whether an address to bind can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def known_hosts(host: str, extra: Iterable[str] = ()) -> frozenset[str]:
    """The names under which a hub may be spoken to: loopback, the address it binds, this machine's names."""
    names = {*_LOOPBACK, *(name.lower() for name in extra)}
    if not is_loopback(host):
        names |= {host.lower(), socket.gethostname().lower()}
    return frozenset(names)


def host_name(header: str) -> str:
    """The name in a Host header, without its port, lower case; empty when there is none."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if text.count(":") == 1 else text


def is_known_host(header: str, known: frozenset[str]) -> bool:
    """Tell whether a Host header names this hub; an address in another loopback network does too."""
    name = host_name(header)
    return name in known or (name[:4] == "127." and is_loopback(name))


def is_same_origin(origin: str, host_header: str, scheme: str) -> bool:
    """Tell whether a page's origin is the hub itself."""
    try:
        parts = urlsplit(origin.strip().lower())
    except ValueError:
        return False
    return parts.scheme == scheme and parts.netloc == host_header.strip().lower()
