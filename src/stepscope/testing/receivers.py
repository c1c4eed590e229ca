"""The contract of every receiver: accepts, stores once, rejects in its dialect, requests retries, checks tokens."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import pytest

Status = Literal["ok", "bad", "too_large", "unauthenticated", "forbidden", "busy", "failed"]


class Reply(NamedTuple):
    """How a receiver answered, read from the dialect's own codes; `failed` is a bug of the hub, as HTTP 500 is."""

    status: Status
    retry_after: float | None = None
    """The retry delay in seconds, where the answer has one."""


class Sender(Protocol):
    """A client of the receiver under test at a real hub, and two switches of that hub."""

    def request(self, run: str, steps: Sequence[int]) -> Any:
        """Make a request with one value of a metric at each step of a run."""

    def send(self, request: Any, token: str = "") -> Reply:
        """Send a request; the same one may be sent again."""

    def garbage(self) -> Iterable[Any]:
        """Make requests that are not in the dialect."""

    def too_large(self) -> Any:
        """Make a request beyond the limit on its size."""

    def stored(self, run: str, count: int) -> list[int]:
        """Wait until this many values of a run are stored; return their steps in order."""

    def token(self, *scopes: str) -> str:
        """Create a token; from then on the hub requires one."""

    def lose_disk(self) -> None:
        """Move the hub's folder away, so that it cannot store anything."""

    def restore_disk(self) -> None:
        """Move it back."""


class ReceiverContract:
    """Inherit, and make the fixtures `sender` and `guarded`, a sender at a hub that has tokens.

    What a transport does not have is opted out of by name.
    """

    can_repeat = True
    can_refuse = True
    """Whether a client gets an answer when its request is rejected."""
    has_tokens = True
    can_be_busy = True

    def test_takes_everything(self, sender: Sender) -> None:
        """Every value of a request is stored, under the run and at the step it names."""
        assert sender.send(sender.request("whole", range(20))).status == "ok"
        assert sender.stored("whole", 20) == list(range(20))

    def test_a_repeated_request_is_stored_once(self, sender: Sender) -> None:
        """A client that lost the answer sends the same again, and nothing is stored twice."""
        if not self.can_repeat:
            pytest.skip("requests are not repeated")
        request = sender.request("repeated", range(5))
        assert [sender.send(request).status for _ in range(3)] == ["ok"] * 3
        assert sender.send(sender.request("repeated", [5])).status == "ok"
        assert sender.stored("repeated", 6) == list(range(6))

    def test_garbage_is_refused_and_blocks_nothing(self, sender: Sender) -> None:
        """A malformed request is rejected permanently, never with a server error, and the next request is accepted."""
        replies = [sender.send(request) for request in sender.garbage()]
        assert replies
        assert {reply.status for reply in replies} <= {"bad", "ok"}
        assert [reply for reply in replies if reply.retry_after is not None] == []
        if self.can_refuse:
            assert "bad" in {reply.status for reply in replies}
        assert sender.send(sender.request("after", range(3))).status == "ok"
        assert sender.stored("after", 3) == [0, 1, 2]

    def test_a_request_that_is_too_large_is_refused(self, sender: Sender) -> None:
        """It is rejected permanently, with the dialect's code for that, and the hub continues."""
        if not self.can_refuse:
            pytest.skip("nothing is refused")
        assert sender.send(sender.too_large()).status == "too_large"
        assert sender.send(sender.request("small", [0])).status == "ok"

    def test_a_token_needs_the_scope(self, guarded: Sender) -> None:
        """Without a token, with an unknown one, or with a read-only one, nothing is accepted."""
        if not self.has_tokens:
            pytest.skip("there are no tokens")
        reading, writing = guarded.token("read"), guarded.token("ingest")
        request = guarded.request("guarded", [1, 2])
        statuses = [guarded.send(request, token).status for token in ("", "sst_00000000_0", reading, writing)]
        assert statuses == ["unauthenticated", "unauthenticated", "forbidden", "ok"]
        assert guarded.stored("guarded", 2) == [1, 2]

    def test_a_hub_that_can_make_nothing_safe_asks_to_wait(self, sender: Sender) -> None:
        """The client gets a retry delay; what it sends again is stored once."""
        if not self.can_be_busy:
            pytest.skip("no server to ask")
        request = sender.request("waiting", [7])
        sender.lose_disk()
        try:
            reply = sender.send(request)
        finally:
            sender.restore_disk()
        assert (reply.status, (reply.retry_after or 0) > 0) == ("busy", True)
        assert sender.send(request).status == "ok"
        assert sender.stored("waiting", 1) == [7]
