"""Posts JSON to a web server and classifies the response: accepted, retry, or rejected."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from stepscope.model.errors import Reject, Retry
from stepscope.sinks.http import RETRYABLE, Connection, retry_after


class Poster:
    """Posts to one address, of which only the host is ever shown, because the path may be a secret."""

    def __init__(self, url: str, timeout: float) -> None:
        self._connection = Connection(url)
        self._timeout = timeout
        parts = urlsplit(url)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def post(self, body: bytes, headers: Mapping[str, str], path: str | None = None) -> None:
        """Send a body; Retry or Reject when it was not accepted."""
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
    """The host of an address, for display: the path may hold a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
