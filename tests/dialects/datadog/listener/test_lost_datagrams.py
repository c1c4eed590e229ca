"""What UDP lost, by the counts that clients send of themselves."""

import pytest

from stepscope.dialects.datadog.listener import dogstatsd
from stepscope.dialects.datadog.listener.dogstatsd import SETTLING_SECONDS, ClientLoss, Loss

HERE, THERE = ("127.0.0.1", 4000), ("127.0.0.1", 4001)


class Clock:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(losses: ClientLoss, sender: object, sent: int, dropped: int = 0) -> Loss | None:
    """A datagram in which a client says what it sent."""
    losses.note("packets_sent", sent)
    losses.note("packets_dropped", dropped)
    return losses.count(sender)  # type: ignore[arg-type]


def settled() -> ClientLoss:
    """One that has listened for long."""
    clock = Clock()
    made = ClientLoss(clock)
    clock.now = SETTLING_SECONDS
    return made


def test_loss_is_what_was_sent_and_did_not_come() -> None:
    """Each client is compared with its own datagrams; the one that tells counts for the next time."""
    losses = settled()
    assert [losses.count(HERE) for _ in range(8)] == [None] * 8
    assert [losses.count(THERE) for _ in range(3)] == [None] * 3
    assert told(losses, HERE, 10) == Loss(2, 0)
    assert told(losses, THERE, 3) is None
    assert losses.count(HERE) is None
    assert told(losses, HERE, 2) is None
    assert told(losses, HERE, 5, dropped=4) == Loss(4, 4)


def test_a_client_of_a_hub_before_this_one_is_not_blamed() -> None:
    """Soon after the start, the first count of a client may be of datagrams that another process took."""
    losses = ClientLoss(Clock())
    losses.count(HERE)
    assert told(losses, HERE, 100) is None
    assert told(losses, HERE, 3) == Loss(2, 0)


def test_senders_without_an_address_lose_nothing_on_the_way() -> None:
    """On a Unix socket nothing is lost silently; what they dropped themselves counts."""
    losses = settled()
    assert told(losses, None, 100) is None
    assert told(losses, None, 100, dropped=5) == Loss(0, 5)


def test_clients_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten."""
    monkeypatch.setattr(dogstatsd, "MAX_CLIENTS", 10)
    losses = settled()
    for port in range(100):
        losses.count(("127.0.0.1", port))
    assert len(losses._clients) == 10
