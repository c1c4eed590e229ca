"""The email notifier against a real SMTP server."""

import email
import email.policy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

pytest.importorskip("aiosmtpd", reason="aiosmtpd is not installed")

from aiosmtpd.controller import Controller

from stepscope.alerts.notifiers.email import Email
from stepscope.model.errors import ConfigError, Retry
from stepscope.testing.notifiers import NotifierContract, example
from tests.alerts.notifiers.ports import free_port


class MailInbox:
    """A mail server that keeps what it accepts."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self._answers: list[str] = []
        self.port = free_port()
        self._server = Controller(self, hostname="127.0.0.1", port=self.port)
        self._server.start()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Take a message, or answer as the test sets it."""
        if self._answers:
            return self._answers.pop(0)
        self.taken.append(envelope.content)
        return "250 OK"

    def busy(self) -> None:
        """Greylist the next."""
        self._answers.append("451 try again later")

    def refuse(self) -> None:
        """Reject the next message permanently."""
        self._answers.append("554 not here")

    def texts(self) -> list[str]:
        """The messages: subject and text."""
        return [f"{each['Subject']}\n{each.get_content()}" for each in self.messages()]

    def messages(self) -> list[Any]:
        """The messages, read."""
        return [email.message_from_bytes(each, policy=email.policy.default) for each in self.taken]

    def close(self) -> None:
        """Stop."""
        self._server.stop()


@pytest.fixture
def inbox() -> Iterator[MailInbox]:
    """A server that is closed at the end."""
    made = MailInbox()
    yield made
    made.close()


@pytest.fixture
def config(inbox: MailInbox) -> Email:
    """The way to the server."""
    said = {"host": "127.0.0.1", "port": inbox.port, "tls": "none", "to": "me@example.org, you@example.org"}
    return Email.read({**said, "from": "hub@example.org"}, {})


class TestContract(NotifierContract):
    pass


def test_headers_cannot_be_added_by_a_message(config: Email, inbox: MailInbox) -> None:
    """A line break in a title adds no header, and everybody in `to` gets the mail."""
    config.open().send(msgspec.structs.replace(example(), title="a\r\nBcc: x"))
    (message,) = inbox.messages()
    assert message["Bcc"] is None
    assert message["To"] == "me@example.org, you@example.org"
    assert message["X-Stepscope-Status"] == "firing"


def test_a_server_that_is_away() -> None:
    """A server that does not answer means Retry, and the error names it without a password."""
    gone = Email.read({"host": "127.0.0.1", "port": free_port(), "to": "a@b", "user": "u", "password": "hunter2"}, {})
    with pytest.raises(Retry) as caught:
        gone.open().send(example())
    assert "127.0.0.1" in str(caught.value)
    assert "hunter2" not in f"{caught.value} {gone.place}"


def test_no_password_without_tls() -> None:
    """A password never goes over the wire in the clear."""
    with pytest.raises(ConfigError, match="a password needs TLS"):
        Email.read({"host": "h", "to": "a@b", "tls": "none", "user": "u", "password": "p"}, {})
