"""The webhook notifier: JSON of a shape or a template, signed with HMAC where there is a secret."""

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from stepscope.alerts.dispatch import Notification
from stepscope.alerts.notifiers.registry import convert
from stepscope.alerts.notifiers.shapes import SHAPES, placeholders
from stepscope.alerts.rule import fill
from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.sinks.http import RETRYABLE, Connection, is_address, retry_after, sendable

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
SIGNATURE = "x-stepscope-signature"
"""`t=SECONDS,v1=HEX`: HMAC-SHA256 of `SECONDS.BODY` with the secret."""
_encode = msgspec.json.Encoder().encode


class Webhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to post, in which shape, and how to sign."""

    url: str = ""
    shape: Literal["json", "slack", "discord", "teams", "pagerduty"] = "json"
    template: dict[str, Any] | None = None
    """A custom body; names in braces inside its texts are replaced."""
    secret: str = ""
    routing_key: str = ""
    """PagerDuty's integration key."""
    headers: dict[str, str] = {}
    timeout: float = 10.0

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Webhook":
        """Read options; the address and the secret are never shown."""
        made = convert(options, cls)
        if made.shape == "pagerduty":
            if not made.routing_key:
                raise ConfigError("PagerDuty needs `routing_key`, the integration key of a service")
            made = msgspec.structs.replace(made, url=made.url or PAGERDUTY)
        if not is_address(made.url):
            raise ConfigError("url must be http://HOST/... or https://HOST/...")
        for name, value in made.headers.items():
            sendable(f"the name of a header ({name!r})", name)
            sendable(f"the header {name}", value)
        return made

    @property
    def place(self) -> str:
        """The host and the shape."""
        return f"{host_of(self.url)} ({self.shape if self.template is None else 'template'})"

    def open(self) -> "WebhookNotifier":
        """Make the notifier."""
        return WebhookNotifier(self)


class WebhookNotifier:
    """Posts notifications."""

    def __init__(self, config: Webhook, now: Callable[[], float] = time.time) -> None:
        self._config, self._now = config, now
        self._poster = Poster(config.url, config.timeout)

    def send(self, notification: Notification) -> None:
        """Post the bodies of a notification; bodies accepted before a Retry may be sent twice."""
        for body in self._bodies(notification):
            content = _encode(body)
            self._poster.post(content, {**self._config.headers, **self._signature(content)})

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()

    def _bodies(self, notification: Notification) -> list[Any]:
        config = self._config
        if config.template is not None:
            return [_filled(config.template, placeholders(notification))]
        bodies = SHAPES[config.shape](notification)
        return [{"routing_key": config.routing_key, **body} for body in bodies] if config.routing_key else bodies

    def _signature(self, body: bytes) -> dict[str, str]:
        if not self._config.secret:
            return {}
        moment = str(int(self._now()))
        return {SIGNATURE: f"t={moment},v1={sign(self._config.secret, moment, body)}"}


def sign(secret: str, moment: str, body: bytes) -> str:
    """The signature of a body sent at a moment."""
    return hmac.new(secret.encode(), moment.encode() + b"." + body, hashlib.sha256).hexdigest()


def _filled(part: Any, values: dict[str, Any]) -> Any:
    if isinstance(part, dict):
        return {key: _filled(value, values) for key, value in part.items()}
    if isinstance(part, list):
        return [_filled(value, values) for value in part]
    return fill(part, values) if isinstance(part, str) else part


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
