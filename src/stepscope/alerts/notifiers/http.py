"""JSON to a web server, with the outcome of the answer: taken, to be tried again, or refused."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from stepscope.model.errors import Reject, Retry
from stepscope.sinks.http import RETRYABLE, Connection, retry_after


class Poster:
    """Posts to one address, of which nothing but the host is ever shown: the path may be the secret."""

    def __init__(self, url: str, timeout: float) -> None:
        self._connection = Connection(url)
        self._timeout = timeout
        parts = urlsplit(url)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def post(self, body: bytes, headers: Mapping[str, str], path: str | None = None) -> None:
        """Send a body; Retry or Reject when it was not taken."""
        sent = {"content-type": "application/json", "user-agent": "Stepscope", **headers}
        answer = self._connection.post(self._path if path is None else path, body, sent, self._timeout)
        if 200 <= answer.status < 300:
            return
        reason = f"HTTP {answer.status}: {answer.body[:200].decode('utf-8', 'replace')}".strip(": ")
        if answer.status in RETRYABLE:
            raise Retry(reason, retry_after(answer.headers))
        raise Reject(reason, ())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def host_of(url: str) -> str:
    """An address without its path, which may hold a secret, for people."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
