"""Delivery to notifiers: each has its own queue and thread, so that one that is down does not delay the others."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from stepscope.alerts.alert import Alert, Subject
from stepscope.alerts.dispatch import Notification, notification
from stepscope.alerts.notifiers.registry import Notifier, NotifierConfig
from stepscope.model.errors import Reject, Retry

MAX_WAITING = 200
MAX_A_MINUTE = 20
FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
GIVE_UP_SECONDS = 6 * 3600.0
"""A notification that could not be delivered for this many seconds is dropped and counted."""


class DeliveryStatus(msgspec.Struct, kw_only=True):
    """The delivery status of one notifier."""

    name: str
    place: str
    sent: int = 0
    retried: int = 0
    rejected: int = 0
    dropped: int = 0
    waiting: int = 0
    problem: str = msgspec.field(default="", name="trouble")
    """Why the last attempt failed; empty when it succeeded."""


class Delivery:
    """Delivers to one notifier on a thread of its own."""

    def __init__(
        self,
        name: str,
        config: NotifierConfig,
        *,
        most_a_minute: int = MAX_A_MINUTE,
        first_wait: float = FIRST_WAIT,
        give_up: float = GIVE_UP_SECONDS,
        on_sent: Callable[[Notification], None] = lambda notification: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.status = DeliveryStatus(name=name, place=config.place)
        self._config, self._on_sent = config, on_sent
        self._most, self._first_wait, self._give_up, self._clock = most_a_minute, first_wait, give_up, clock
        self._queue: deque[Notification] = deque()
        self._sent: deque[float] = deque(maxlen=most_a_minute)
        self._undelivered = 0
        """Notifications dropped since the last successful delivery."""
        self._wake, self._halt = threading.Event(), threading.Event()
        self._idle = threading.Condition()
        self._busy = False
        self._thread = threading.Thread(target=self._loop, name=f"stepscope-notify-{name}", daemon=True)
        self._thread.start()

    def offer(self, notification: Notification) -> bool:
        """Queue a notification; False, and counted, when the queue is full."""
        if len(self._queue) >= MAX_WAITING or self._halt.is_set():
            self.status.dropped += 1
            self._undelivered += 1
            return False
        self._queue.append(notification)
        self._wake.set()
        return True

    def wait_idle(self, seconds: float) -> bool:
        """Wait until the queue is empty and nothing is being sent; False on timeout."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._queue and not self._busy, seconds)

    def stop(self, seconds: float = 2.0) -> None:
        """Deliver what is possible within the timeout, and stop."""
        self.wait_idle(seconds)
        self._halt.set()
        self._wake.set()
        self._thread.join(0.5)

    def _loop(self) -> None:
        notifier: Notifier | None = None
        while not self._halt.is_set():
            self._wake.wait()
            self._wake.clear()
            while self._queue and not self._halt.is_set():
                self._busy = True
                notification = self._queue.popleft()
                self.status.waiting = len(self._queue)
                notifier = self._deliver(notifier, notification)
                self._busy = False
                with self._idle:
                    self._idle.notify_all()
        if notifier is not None:
            notifier.close()

    def _deliver(self, notifier: Notifier | None, notification: Notification) -> Notifier | None:
        began, wait = self._clock(), self._first_wait
        self._keep_rate()
        while not self._halt.is_set():
            try:
                notifier = notifier or self._config.open()
                notifier.send(self._with_dropped(notification))
            except Reject as error:
                self.status.rejected += 1
                self.status.problem = str(error)[:300]
                return notifier
            except Retry as error:
                self.status.problem = str(error)[:300]
                after = min(error.after or wait, LONGEST_WAIT)
            except Exception as error:  # a bug of a notifier must not end its thread
                self.status.problem = f"{type(error).__name__}: {error}"[:300]
                after = wait
            else:
                self.status.sent += 1
                self.status.problem = ""
                self._undelivered = 0
                self._sent.append(self._clock())
                self._on_sent(notification)
                return notifier
            if self._clock() - began + after > self._give_up:
                self.status.dropped += 1
                self._undelivered += 1
                return notifier
            self.status.retried += 1
            wait = min(wait * 2, LONGEST_WAIT)
            self._halt.wait(after)
        return notifier

    def _keep_rate(self) -> None:
        """Wait until the rate limit per minute allows the next notification."""
        if len(self._sent) == self._most:
            self._halt.wait(max(self._sent[0] + 60.0 - self._clock(), 0.0))

    def _with_dropped(self, notification: Notification) -> Notification:
        if not self._undelivered:
            return notification
        text = f"{notification.text}\n({self._undelivered} earlier notifications could not be delivered)"
        return msgspec.structs.replace(notification, text=text)


class Deliveries:
    """All notifiers of a hub, by name."""

    def __init__(
        self,
        configs: Mapping[str, NotifierConfig],
        on_sent: Callable[[Notification], None] = lambda notification: None,
    ) -> None:
        self._all = {name: Delivery(name, config, on_sent=on_sent) for name, config in configs.items()}

    def send(self, notification: Notification) -> bool:
        """Queue a notification; False when the notifier is unknown or its queue is full."""
        found = self._all.get(notification.notifier)
        return found is not None and found.offer(notification)

    def statuses(self) -> list[DeliveryStatus]:
        """The status of each notifier."""
        return [each.status for each in self._all.values()]

    def stop(self, seconds: float = 2.0) -> None:
        """Stop all notifiers within one common timeout."""
        deadline = time.monotonic() + seconds
        for each in self._all.values():
            each.stop(max(deadline - time.monotonic(), 0.0))


def send_test(name: str, config: NotifierConfig, now: int, address: str = "", seconds: float = 15.0) -> str:
    """Send a test notification and wait; return why it failed, empty when it was accepted."""
    about = Subject("test", "test-run", "trainer/loss", 0)
    text = "This is a test of the notifier: nothing is wrong."
    alert = Alert(id="test", subject=about, state="firing", severity="INFO", message=text, began=now, changed=now)
    outcome: list[str] = []

    def send() -> None:
        try:
            made = config.open()
            try:
                made.send(notification(name, "firing", [alert], now, address, test=True))
            finally:
                made.close()
            outcome.append("")
        except Exception as error:
            outcome.append(str(error) or type(error).__name__)

    thread = threading.Thread(target=send, name="stepscope-notify-test", daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else f"it did not answer in {seconds:g} s"
