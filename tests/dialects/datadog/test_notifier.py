"""The Datadog notifier: events and service checks, at a server that checks the documented shapes."""

import json
import time
from collections.abc import Iterator

import pytest

from stepscope.dialects.datadog.notifier import CHECK, Datadog
from stepscope.testing.notifiers import NotifierContract, example
from tests.sinks.servers import Reply, Server

KEY = "0123456789abcdef" * 2


class Intake:
    """An intake that keeps events and checks."""

    def __init__(self) -> None:
        self.server = Server()
        self.server.success = Reply(202, body=b'{"status": "ok"}')

    def busy(self) -> None:
        """Answer the next with 429."""
        self.server.replies.append(Reply(429))

    def refuse(self) -> None:
        """Answer the next with 400."""
        self.server.replies.append(Reply(400, body=b'{"errors": ["odd"]}'))
        self.server.replies.append(Reply(400, body=b'{"errors": ["odd"]}'))

    def texts(self) -> list[str]:
        """The events."""
        return [json.dumps(body, ensure_ascii=False) for path, body in self.bodies() if path == "/api/v1/events"]

    def bodies(self) -> list[tuple[str, object]]:
        """Paths and bodies."""
        return [(got.path, json.loads(got.body)) for got in self.server.received]


@pytest.fixture
def inbox() -> Iterator[Intake]:
    """A server that is closed at the end."""
    made = Intake()
    yield made
    made.server.stop()


@pytest.fixture
def config(inbox: Intake) -> Datadog:
    """The HTTP intake."""
    return Datadog.read({"transport": "http", "url": inbox.server.url, "api_key": KEY}, {})


class TestContract(NotifierContract):
    secret = KEY


def test_an_alert_is_an_event_and_a_check(config: Datadog, inbox: Intake) -> None:
    """A firing alert is an event and a CRITICAL check, a resolved one makes the check OK again."""
    notifier = config.open()
    notifier.send(example())
    notifier.send(example("resolved"))
    found = inbox.bodies()
    events = [body for path, body in found if path == "/api/v1/events"]
    checks = [body[0] for path, body in found if path == "/api/v1/check_run" and isinstance(body, list)]
    assert [event["alert_type"] for event in events if isinstance(event, dict)] == ["error", "info"]
    assert [(check["check"], check["status"]) for check in checks] == [(CHECK, 2), (CHECK, 0)]
    assert {"rule:high_loss", "key:trainer/loss", "rank:0"} <= set(checks[0]["tags"])
    assert abs(checks[0]["timestamp"] - time.time()) < 600
