"""The webhook notifier against a real web server, in every shape."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.alerts.notifiers.webhook import SIGNATURE, Webhook
from stepscope.model.errors import ConfigError
from stepscope.testing.notifiers import NotifierContract, example
from tests.sinks.servers import Reply, Server

SECRET = "T0KEN-in-the-path"


class WebInbox:
    """A web server that takes messages."""

    def __init__(self) -> None:
        self.server = Server()

    def busy(self) -> None:
        """Answer the next with 503."""
        self.server.replies.append(Reply(503))

    def refuse(self) -> None:
        """Answer the next with 404."""
        self.server.replies.append(Reply(404, body=b"no such hook"))

    def texts(self) -> list[str]:
        """The bodies."""
        return [json.dumps(json.loads(got.body), ensure_ascii=False) for got in self.server.received]


@pytest.fixture
def inbox() -> Iterator[WebInbox]:
    """A server that is closed at the end."""
    made = WebInbox()
    yield made
    made.server.stop()


def made(inbox: WebInbox, **options: Any) -> Webhook:
    """A webhook to the inbox."""
    return Webhook.read({"url": f"{inbox.server.url}/hooks/{SECRET}", "secret": SECRET, **options}, {})


class TestContract(NotifierContract):
    secret = SECRET

    @pytest.fixture(params=["json", "slack", "discord", "teams"])
    def config(self, inbox: WebInbox, request: pytest.FixtureRequest) -> Webhook:
        """A webhook in one of the shapes."""
        return made(inbox, shape=request.param)


def test_the_signature_is_of_time_and_body(inbox: WebInbox) -> None:
    """A receiver that knows the secret can tell that a message is ours, whole and fresh."""
    made(inbox).open().send(example())
    (got,) = inbox.server.received
    moment, signature = (part.split("=")[1] for part in got.headers[SIGNATURE].split(","))
    wanted = hmac.new(SECRET.encode(), moment.encode() + b"." + got.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(signature, wanted)


def test_pagerduty_gets_one_event_for_each_alert(inbox: WebInbox) -> None:
    """Events are opened and closed by the fingerprint."""
    notifier = made(inbox, shape="pagerduty", routing_key="key").open()
    notifier.send(example(count=2))
    notifier.send(example("resolved"))
    bodies = [json.loads(got.body) for got in inbox.server.received]
    assert [body["event_action"] for body in bodies] == ["trigger", "trigger", "resolve"]
    assert bodies[0]["dedup_key"] == bodies[2]["dedup_key"] != bodies[1]["dedup_key"]
    assert {body["routing_key"] for body in bodies} == {"key"}
    assert bodies[0]["payload"]["severity"] == "error"
    assert bodies[0]["payload"]["custom_details"]["value"] == "NaN"


def test_a_template_is_filled(inbox: WebInbox) -> None:
    """A body of one's own has the words where the names in braces stood, at any depth."""
    template = {"msg": "{severity}: {title}", "list": [{"run": "{run}"}, 3], "odd": "{nothing}"}
    made(inbox, template=template).open().send(example())
    assert json.loads(inbox.server.received[0].body) == {
        "msg": "ERROR: high loss in baseline",
        "list": [{"run": "contract-run"}, 3],
        "odd": "{nothing}",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "ftp://x"}, "url must be"),
        ({"url": "http://x", "shape": "irc"}, "irc"),
        ({"shape": "pagerduty"}, "routing_key"),
        ({"url": "http://x", "headrs": {}}, "did you mean 'headers'"),
        ({"url": "http://x", "headers": {"a": "b\nc"}}, "line break"),
        ({"url": "http://x", "timeout": 0}, "timeout"),
    ],
)
def test_wrong_options(options: dict[str, Any], said: str) -> None:
    """A wrong option is named, with what would be right."""
    with pytest.raises(ConfigError, match=said):
        Webhook.read(options, {})
