"""The contract of every notifier: delivers, retries, rejects, hides its secrets, closes."""

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

import pytest

from stepscope.alerts.alert import Alert, Subject
from stepscope.alerts.dispatch import Notification, Status, notification
from stepscope.alerts.notifiers.registry import Notifier, NotifierConfig
from stepscope.model.errors import Reject, Retry


class Inbox(Protocol):
    """The receiving side of a notifier under test: a real receiver with configurable answers."""

    def busy(self) -> None:
        """Answer the next delivery with a temporary error."""

    def refuse(self) -> None:
        """Answer the next delivery with a permanent error."""

    def texts(self) -> list[str]:
        """The accepted messages, as text."""


def example(
    status: Status = "firing", count: int = 1, message: str = "trainer/loss is NaN since step 7"
) -> Notification:
    """A notification of alerts of one run, from just now: some destinations take nothing old."""
    began = time.time_ns() - 2_000_000_000
    alerts = [
        Alert(
            id=f"a{index}",
            subject=Subject("high loss", "contract-run", "trainer/loss", index),
            project="contract",
            run_name="baseline",
            state="firing" if status == "firing" else "resolved",
            severity="ERROR",
            message=message,
            value=float("nan"),
            step=7,
            began=began,
            changed=began,
            resolved=0 if status == "firing" else began + 1_000_000_000,
        )
        for index in range(count)
    ]
    return notification("contract", status, alerts, began + 2_000_000_000, "http://hub.example:4318")


class NotifierContract:
    """Inherit, and make `config` and `inbox` fixtures; what a destination cannot do is opted out of by name."""

    can_be_busy = True
    can_refuse = True
    secret = ""
    """A secret among the options that must never be shown."""

    @pytest.fixture
    def notifier(self, config: NotifierConfig) -> Iterator[Notifier]:
        """The notifier under test, closed at the end."""
        made = config.open()
        with contextlib.closing(made):
            yield made

    def test_says_what_happened(self, notifier: Notifier, inbox: Inbox) -> None:
        """The message arrives with the words of the alert, NaN and all."""
        notifier.send(example())
        (text,) = inbox.texts()
        assert "trainer/loss is NaN since step 7" in text

    def test_says_that_it_is_over(self, notifier: Notifier, inbox: Inbox) -> None:
        """A resolved alert is reported as such."""
        notifier.send(example())
        notifier.send(example("resolved"))
        first, second = inbox.texts()
        assert first != second

    @pytest.mark.parametrize(
        "message", ["", "ü \u2028 \x00 \r\nBcc: evil@example.org", "x" * 100_000, "{text} %s $(id)"]
    )
    def test_odd_messages(self, notifier: Notifier, inbox: Inbox, message: str) -> None:
        """Any text can be delivered: control characters, templates of other languages, and very long ones."""
        notifier.send(example(message=message))
        assert len(inbox.texts()) == 1

    def test_many_alerts(self, notifier: Notifier, inbox: Inbox) -> None:
        """A hundred alerts of a run are delivered."""
        notifier.send(example(count=100))
        assert inbox.texts()

    def test_busy_then_taken(self, notifier: Notifier, inbox: Inbox) -> None:
        """A destination that is busy means Retry; sent again, the message arrives."""
        if not self.can_be_busy:
            pytest.skip("this destination is never busy")
        inbox.busy()
        with pytest.raises(Retry):
            notifier.send(example())
        notifier.send(example())
        assert len(inbox.texts()) == 1

    def test_refusal(self, notifier: Notifier, inbox: Inbox) -> None:
        """A refusal means Reject with a reason, and the next message is delivered."""
        if not self.can_refuse:
            pytest.skip("this destination refuses nothing")
        inbox.refuse()
        with pytest.raises(Reject) as caught:
            notifier.send(example())
        assert str(caught.value)
        assert not self.secret or self.secret not in str(caught.value)
        notifier.send(example())
        assert len(inbox.texts()) == 1

    def test_secrets_are_not_shown(self, config: NotifierConfig) -> None:
        """The place is for people and holds no secret."""
        assert config.place
        assert not self.secret or self.secret not in config.place

    def test_closes(self, notifier: Notifier, inbox: Inbox) -> None:
        """Closing twice is allowed, before and after a message."""
        notifier.close()
        notifier.send(example())
        notifier.close()
        notifier.close()
        assert len(inbox.texts()) == 1
