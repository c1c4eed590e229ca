"""Which proxy a request goes through: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, read as others read them."""

import base64
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from stepscope.model.errors import ConfigError


class Proxy(NamedTuple):
    """A proxy that takes HTTP, and what it wants to be shown."""

    host: str
    port: int
    headers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def find_proxy(scheme: str, host: str, port: int, env: Mapping[str, str]) -> Proxy | None:
    """Find the proxy for a server; None for this machine, and for hosts that NO_PROXY names."""
    if is_here(host) or _is_excepted(host, port, _said(env, "no_proxy")):
        return None
    url = _said(env, f"{scheme}_proxy") or _said(env, "all_proxy")
    if not url:
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        number = parts.port or 80
    except ValueError:  # its words may hold a part of the password
        raise ConfigError(f"the proxy ({scheme.upper()}_PROXY) cannot be used: only http://HOST:PORT can") from None
    if parts.scheme != "http" or not parts.hostname:
        shown = f"{parts.scheme}://{parts.hostname or ''}"
        raise ConfigError(f"the proxy {shown} ({scheme.upper()}_PROXY) cannot be used: only http://HOST:PORT can")
    headers = {}
    if parts.username:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(secret).decode()}"
    return Proxy(parts.hostname, number, headers)


def is_here(host: str) -> bool:
    """Tell whether a host is this machine: nobody's proxy leads there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _said(env: Mapping[str, str], name: str) -> str:
    """Read a variable in lower or upper case; but under CGI it is a client who sets HTTP_PROXY."""
    upper = "" if name == "http_proxy" and "REQUEST_METHOD" in env else env.get(name.upper(), "")
    return (env.get(name) or upper).strip()


def _is_excepted(host: str, port: int, rules: str) -> bool:
    return any(_matches(host.lower(), port, rule.strip().lower()) for rule in rules.split(",") if rule.strip())


def _matches(host: str, port: int, rule: str) -> bool:
    if rule == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        pass
    name, colon, number = rule.rpartition(":")
    if colon and number.isdigit():
        if int(number) != port:
            return False
        rule = name
    rule = rule.removeprefix("*").lstrip(".")
    return host == rule or host.endswith(f".{rule}")
