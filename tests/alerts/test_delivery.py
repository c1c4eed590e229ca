"""Delivery: retries, a rate limit, and a dead notifier that does not delay others."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.alerts.delivery import MAX_WAITING, Deliveries, Delivery
from stepscope.alerts.dispatch import Notification
from stepscope.alerts.notifiers.registry import read
from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.testing.notifiers import example


class Plan:
    """A notifier that does what a function says, and its own configuration."""

    place = "a test"

    def __init__(self, act: Callable[[Notification], None] = lambda said: None) -> None:
        self._act = act
        self.taken: list[Notification] = []

    def open(self) -> "Plan":
        """Itself."""
        return self

    def send(self, notification: Notification) -> None:
        """Do it, and keep what was taken."""
        self._act(notification)
        self.taken.append(notification)

    def close(self) -> None:
        """Nothing."""


def failing(*errors: Exception) -> Callable[[Notification], None]:
    """Raise these one after the other, then nothing."""
    left = list(errors)

    def act(notification: Notification) -> None:
        if left:
            raise left.pop(0)

    return act


def test_it_tries_again_until_it_is_taken() -> None:
    """After Retry, and after a bug of the notifier, the same message is sent again."""
    plan = Plan(failing(Retry("busy"), ZeroDivisionError(), Retry("busy", after=0.01)))
    delivery = Delivery("a", plan, first_wait=0.01)
    delivery.offer(example())
    assert delivery.wait_idle(300)
    assert (delivery.status.sent, delivery.status.retried, delivery.status.problem) == (1, 3, "")
    delivery.stop()


def test_a_refusal_is_not_tried_again() -> None:
    """After Reject the next message is sent, and the reason is kept until one is taken."""
    plan = Plan(failing(Reject("never", ())))
    delivery = Delivery("a", plan)
    delivery.offer(example())
    assert delivery.wait_idle(300)
    assert (delivery.status.rejected, delivery.status.problem) == (1, "never")
    delivery.offer(example())
    assert delivery.wait_idle(300)
    assert (delivery.status.sent, len(plan.taken)) == (1, 1)
    delivery.stop()


def test_it_gives_up() -> None:
    """What cannot be delivered for too long is dropped, and the next message says so."""
    plan = Plan(failing(Retry("away", after=5.0)))
    delivery = Delivery("a", plan, give_up=1.0)
    delivery.offer(example())
    delivery.offer(example())
    assert delivery.wait_idle(300)
    assert delivery.status.dropped == 1
    assert "1 earlier notifications could not be delivered" in plan.taken[0].text
    delivery.stop()


def test_a_dead_one_delays_nobody() -> None:
    """While one notifier hangs, another delivers; too many waiting are counted and never block."""
    hang, hanging = threading.Event(), threading.Event()

    def wait(notification: Notification) -> None:
        hanging.set()
        hang.wait(300)

    dead, live = Delivery("dead", Plan(wait)), Delivery("live", Plan(), most_a_minute=1000)
    assert dead.offer(example())
    assert hanging.wait(300)
    offered = [dead.offer(example()) for _ in range(MAX_WAITING + 5)]
    assert (sum(offered), dead.status.dropped) == (MAX_WAITING, 5)
    live.offer(example())
    assert live.wait_idle(300)
    assert live.status.sent == 1
    hang.set()
    for each in (dead, live):
        each.stop(0.0)


def test_the_rate_is_capped() -> None:
    """No more than so many are sent in a minute; the rest waits."""
    plan, clock = Plan(), [0.0]
    delivery = Delivery("a", plan, most_a_minute=2, clock=lambda: clock[0])
    for _ in range(3):
        delivery.offer(example())
    assert not delivery.wait_idle(1.0)
    assert len(plan.taken) == 2
    delivery.stop(0.0)


def test_options_come_from_variables() -> None:
    """`${NAME}` is a variable's value, so that no secret has to stand in a file; one that is not set is named."""
    given: dict[str, Any] = {"webhook": {"url": "https://x/${HOOK}", "headers": {"a": "${A}"}}}
    config: Any = read("ops", given, {"HOOK": "s3cret", "A": "b"})
    assert (config.url, config.headers) == ("https://x/s3cret", {"a": "b"})
    assert "s3cret" not in config.place
    with pytest.raises(ConfigError, match="the variable HOOK is not set"):
        read("ops", given, {})
    with pytest.raises(ConfigError, match="did you mean 'webhook'"):
        read("ops", {"webhok": {}}, {})


def test_all_of_a_hub() -> None:
    """A notification goes to the selected notifier; an unknown name is reported."""
    plan = Plan()
    all_of_them = Deliveries({"contract": plan})
    assert all_of_them.send(example())
    assert not Deliveries({}).send(example())
    all_of_them.stop(30.0)
    assert len(plan.taken) == 1
