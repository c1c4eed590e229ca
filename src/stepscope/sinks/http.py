"""One connection to an HTTP server, kept open, through a proxy where one is set; no request exceeds its timeout."""

import base64
import contextlib
import email.utils
import gzip
import http.client
import ipaddress
import mmap
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from stepscope.model.errors import ConfigError, Retry
from stepscope.model.redaction import is_secret
from stepscope.sinks.tls_calls import in_openssl


class Proxy(NamedTuple):
    """An HTTP proxy and its credentials."""

    host: str
    port: int
    headers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def find_proxy(scheme: str, host: str, port: int, env: Mapping[str, str]) -> Proxy | None:
    """Find the proxy for a server; None for this machine, and for hosts that NO_PROXY names."""
    if is_here(host) or _is_excepted(host, port, _variable(env, "no_proxy")):
        return None
    url = _variable(env, f"{scheme}_proxy") or _variable(env, "all_proxy")
    if not url:
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        number = parts.port or 80
    except ValueError:  # the message may hold a part of the password
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
    """Return whether a host is this machine: no proxy is used for it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _variable(env: Mapping[str, str], name: str) -> str:
    """Read a variable in lower or upper case; under CGI HTTP_PROXY is ignored, because clients set it."""
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


MAX_ANSWER = 1024 * 1024
DENIED = frozenset({401, 403, 407})
"""Statuses about the credentials: records are kept and sent again once the token is valid."""
SERVER_ERROR = 500
"""The status of a server whose disk or database fails, whatever was sent, or that breaks on one record."""
_UNSUPPORTED = frozenset({501, 505})
RETRYABLE = DENIED | {408, 425, 429} | (frozenset(range(SERVER_ERROR, 600)) - _UNSUPPORTED)
"""The statuses after which a request is retried: those about credentials or load, and failures of a server or proxy."""
BLAMES_A_RECORD = frozenset({400, 413, 422})
"""Statuses that a record, or the number of records, may cause; others are about the address."""


def is_address(url: str) -> bool:
    """Return whether a URL is that of a web server: http or https, a host, and a valid port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or too large; half an IPv6 address
        return False


def without_secrets(url: str) -> str:
    """Write an address without credentials and without parameters whose names mean secrets."""
    if not is_address(url):  # it cannot be parsed
        return re.sub(r"^(\w+://)?.*@", r"\1", url, flags=re.DOTALL)
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    kept = [(key, value) for key, value in pairs if not is_secret(key)]
    if host == parts.netloc and kept == pairs:
        return url
    query = parts.query if kept == pairs else urlencode(kept)
    return urlunsplit(parts._replace(netloc=host, query=query))


def check_address(what: str, url: str, use: str = "http://HOST:PORT or https://HOST:PORT") -> None:
    """Raise ConfigError unless a URL is that of a web server; `use` is the suggested fix."""
    if not is_address(url):
        raise ConfigError(f"{what} {without_secrets(url)!r} is not usable; use {use}")


def sendable(what: str, text: str | None) -> str | None:
    """A valid header value, without a trailing line break; ConfigError does not show it."""
    trimmed = text.strip() if text is not None else None
    if trimmed and not (trimmed.isascii() and trimmed.isprintable()):
        raise ConfigError(f"{what} cannot be sent: it has a line break or a character that is not ASCII")
    return trimmed


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """CA and client certificates; all files are PEM."""

    certificate: str | None = None
    client_key: str | None = None
    client_certificate: str | None = None
    verify: bool = True
    """False accepts any certificate."""

    def check(self) -> None:
        """Check that the files exist; ConfigError names a missing one."""
        for name in (self.certificate, self.client_key, self.client_certificate):
            if name and not os.path.isfile(name):
                raise ConfigError(f"TLS files: {name} does not exist")

    def context(self) -> ssl.SSLContext:
        """Read the files; ConfigError names the one that cannot be used."""
        try:
            with in_openssl(_nothing):
                context = ssl.create_default_context(cafile=self.certificate)
                if self.client_certificate:
                    context.load_cert_chain(self.client_certificate, self.client_key)
        except (OSError, ssl.SSLError) as error:
            names = [name for name in (self.certificate, self.client_certificate, self.client_key) if name]
            raise ConfigError(f"TLS files {', '.join(names)} cannot be used: {error}") from None
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def _nothing() -> None:
    """Reading certificates cannot be cut short: it takes no longer than its work."""


class Answer(NamedTuple):
    """The response of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """A keep-alive connection to the server of a URL, opened when needed, through a proxy where the environment names
    one. Not thread-safe.
    """

    def __init__(self, url: str, tls: Tls | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if not is_address(url):
            shown = without_secrets(url)
            raise ConfigError(
                f"{shown!r} is not the address of a server: expected http://HOST:PORT or https://HOST:PORT"
            )
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._proxy = find_proxy(parts.scheme, self._host, self._port, os.environ)
        self._context = (tls or Tls()).context() if parts.scheme == "https" else None
        self._clock = clock
        self._open: http.client.HTTPConnection | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of its socket."""
        self._used = False
        """Whether the open connection has served a request."""

    def post(self, path: str, body: bytes, headers: Mapping[str, str], timeout: float) -> Answer:
        """Send a body and read the answer; Retry when none came. No redirect is followed."""
        return self.ask("POST", path, body, headers, timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | mmap.mmap,
        headers: Mapping[str, str],
        timeout: float,
        *,
        most: int = MAX_ANSWER,
        once: bool = False,
    ) -> Answer:
        """Send a request and read a limited part of the response; with `once` it is never sent twice."""
        deadline = self._clock() + timeout
        if once:
            self._close()
        for fresh in (False, True):
            try:
                return self._exchange(method, path, body, headers, deadline, most)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                # A server may close a connection that was idle just as we use it; a new one tells the truth.
                reused = self._close()
                late = self._clock() >= deadline  # then we closed it ourselves
                if fresh or not reused or late:
                    reason = explain(TimeoutError()) if late else f"the server closed the connection: {error!r}"
                    raise Retry(reason) from error
            except (OSError, http.client.HTTPException) as error:
                self._close()
                through = f"through the proxy {self._proxy}: " if self._proxy is not None else ""
                raise Retry(through + explain(error)) from error
            except ValueError as error:  # a header or path that http.client refuses; it would show what it holds
                self._close()
                raise Retry(
                    "the request cannot be sent: a header or the path has characters that HTTP does not allow"
                ) from error
        raise AssertionError("the second try returns or raises")

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._close()

    def _close(self) -> bool:
        """Close; return whether the connection had been used before."""
        connection, self._open = self._open, None
        reused, self._used = self._used, False
        if connection is not None:
            _let_go(connection, self._file)
            connection.close()
        return reused

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | mmap.mmap,
        headers: Mapping[str, str],
        deadline: float,
        most: int,
    ) -> Answer:
        left = deadline - self._clock()
        if left <= 0:
            raise TimeoutError("no time left")
        if self._open is not None and self._open.sock is not None and _file_of(self._open.sock) != self._file:
            self._close()
        connection = self._open or self._made(left)
        # Socket timeouts are per read: a server that sends a byte now and then would hold us for ever.
        watch = threading.Timer(left, _cut, (connection,))
        watch.daemon = True
        with contextlib.suppress(RuntimeError):  # no thread can be started while Python exits
            watch.start()
        try:
            if self._open is None:
                self._connect(connection)
            connection.sock.settimeout(left)
            target, more = self._through_proxy(path)
            with in_openssl(lambda: _cut(connection)) if self._context else contextlib.nullcontext():
                connection.request(method, target, body or None, {**headers, **more})
                response = connection.getresponse()
                short = response.length is not None and response.length <= most
                content = response.read() if short else response.read(most)
        finally:
            watch.cancel()
        found = {name.lower(): value for name, value in response.getheaders()}
        if not found:  # every server sends some: it died after the status line, and http.client takes that for an end
            raise http.client.IncompleteRead(content)
        if response.will_close or not response.isclosed():
            self._close()
        else:
            self._used = True
        return Answer(response.status, found, content)

    def _made(self, timeout: float) -> http.client.HTTPConnection:
        host, port = (self._proxy.host, self._proxy.port) if self._proxy is not None else (self._host, self._port)
        if self._context is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        made = _Https(host, port, timeout=timeout, context=self._context)
        if self._proxy is not None:
            made.set_tunnel(self._host, self._port, dict(self._proxy.headers))
        return made

    def _connect(self, made: http.client.HTTPConnection) -> None:
        self._open, self._file, self._used = made, None, False
        made.connect()
        self._file = _file_of(made.sock)
        made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _through_proxy(self, path: str) -> tuple[str, Mapping[str, str]]:
        """The request target, and headers for the proxy; through a tunnel, and without a proxy, just the path."""
        if self._proxy is None or self._context is not None:
            return path, {}
        name = f"[{self._host}]" if ":" in self._host else self._host
        host = name if self._port == 80 else f"{name}:{self._port}"
        return f"http://{host}{path}", {**self._proxy.headers, "Host": host}


class _Https(http.client.HTTPSConnection):
    """A connection whose handshake can be cut short from another thread."""

    def connect(self) -> None:
        """Connect, perhaps through a proxy, and agree on keys."""
        http.client.HTTPConnection.connect(self)
        with self.sock.dup() as same, in_openssl(lambda: _shut(same)):
            name = self._tunnel_host or self.host  # type: ignore[attr-defined]
            self.sock = self._context.wrap_socket(self.sock, server_hostname=name)  # type: ignore[attr-defined]


def _file_of(sock: socket.socket) -> tuple[int, int] | None:
    """Return device and inode of an open socket."""
    try:
        found = os.fstat(sock.fileno())
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _let_go(connection: http.client.HTTPConnection, file: tuple[int, int] | None) -> None:
    """Leave a descriptor open that is no longer that of the socket, but of a file that the program opened since."""
    sock = connection.sock
    if sock is not None and file is not None and sock.fileno() >= 0 and _file_of(sock) != file:
        sock.detach()


def _cut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        _shut(connection.sock)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of TLS, which would wait for its lock


def explain(error: BaseException) -> str:
    """Describe in one line why there was no response."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the server's certificate is not trusted ({error.verify_message}); name its CA as `certificate`"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}; is the server really speaking TLS on this port?"
    if isinstance(error, socket.gaierror):
        return f"DNS: the host's name is not known ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        return "refused: nothing listens on this port (server down, or tunnel closed)"
    if isinstance(error, TimeoutError):
        return "no answer in time (server hangs, or a firewall swallows the packets)"
    if str(error).startswith("Tunnel connection failed"):
        return f"refused: {error}"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer was cut off"
    if isinstance(error, http.client.BadStatusLine):
        return "the answer is not HTTP/1; is this a gRPC port? Use `protocol: grpc`, or the HTTP port (4318)"
    return f"{type(error).__name__}: {error}"


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Read Retry-After, in seconds or as a date; None without one, or when it is in the past."""
    text = headers.get("retry-after", "").strip()
    try:
        if text.isascii() and text.isdigit():
            return float(text[:9]) or None
        seconds = email.utils.parsedate_to_datetime(text).timestamp() - now()
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def not_from(service: str, answer: Answer) -> Retry:
    """Make the error for a success that the service did not write: a proxy, a login page or another server did."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()[:80] or "no content type"
    shown = answer.body[:60].decode("utf-8", "replace")
    return Retry(
        f"HTTP {answer.status}, but the response is not from {service} ({kind}, {shown!r}): nothing counts as"
        " delivered. Check the address, and proxies or login pages in front of it"
    )


def compress(body: bytes) -> bytes:
    """Compress a body with gzip, for speed."""
    return gzip.compress(body, 1, mtime=0)
