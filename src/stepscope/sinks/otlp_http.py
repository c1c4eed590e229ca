"""OTLP over HTTP: protobuf or JSON, statuses read as the specification has them, but a wrong token is waited for."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from stepscope.model.errors import Reject, Retry, ServerError
from stepscope.sinks.http import BLAMES_A_RECORD, RETRYABLE, SERVER_ERROR, Answer, Connection, compress, retry_after
from stepscope.sinks.otlp_variables import Target
from stepscope.wire.otlp.encode.encode_request import Request
from stepscope.wire.otlp.names import CONTENT_TYPES, Encoding
from stepscope.wire.otlp.replies import PartialSuccess, read_reply, read_status

AGENT = "Stepscope OTel-OTLP-Exporter-Python/stepscope"


class HttpSend:
    """One signal's way to its server over HTTP. Not thread-safe."""

    def __init__(self, target: Target, *, now: Callable[[], float] = time.time) -> None:
        parts = urlsplit(target.url)
        self._target = target
        self._encoding: Encoding = "json" if target.protocol == "http/json" else "protobuf"
        self._path = parts.path + (f"?{parts.query}" if parts.query else "")
        self._connection = Connection(target.url, target.tls)
        self._now = now
        self._headers = {"user-agent": AGENT, **target.headers, "content-type": CONTENT_TYPES[self._encoding]}
        if target.gzip:
            self._headers["content-encoding"] = "gzip"

    def __call__(self, request: Request, timeout: float) -> PartialSuccess:
        """Deliver a request."""
        body = request.body
        if self._encoding == "json":
            from stepscope.wire.otlp.encode.to_json import to_json

            body = to_json(request.signal, body)
        if self._target.gzip:
            body = compress(body)
        answer = self._connection.post(self._path, body, self._headers, min(timeout, self._target.timeout))
        if 200 <= answer.status < 300:
            return read_reply(request.signal, self._answer_encoding(answer), answer.body)
        reason = self._reason(answer)
        if answer.status == SERVER_ERROR:
            raise ServerError(reason, request.where, retry_after(answer.headers, self._now))
        if answer.status in RETRYABLE:
            raise Retry(reason, retry_after(answer.headers, self._now))
        raise Reject(reason, request.where, together=answer.status in BLAMES_A_RECORD)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _answer_encoding(self, answer: Answer) -> Encoding:
        said = answer.headers.get("content-type", "")
        return "json" if "json" in said else self._encoding

    def _reason(self, answer: Answer) -> str:
        if 300 <= answer.status < 400:
            return f"HTTP {answer.status}: a redirect to {answer.headers.get('location', 'nowhere')[:200]}, not taken"
        status = read_status(self._answer_encoding(answer), answer.body)
        return f"HTTP {answer.status}: {status.message[:200]}".rstrip(": ")
