"""How a run fares: what its writers said, else how long they have been silent. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["running", "stalled", "crashed", "finished", "failed", "preempted"]

STALLED_SECONDS, CRASHED_SECONDS = 20.0, 120.0
"""So long is a writer silent that beats every 5 s: a few beats missed, and then too many."""
QUIET_SECONDS, GONE_SECONDS = 300.0, 3600.0
"""The same for one that promised no beat, such as an OpenTelemetry exporter; it can end without a word."""

_ORDER: tuple[State, ...] = ("failed", "crashed", "stalled", "running", "preempted", "finished")
"""What someone should look at first wins."""


@dataclass(frozen=True, slots=True)
class WriterFacts:
    """What is known of one process of a run; times in seconds of the reader's clock."""

    attempt: int
    seen: float
    """When its last record came."""
    said: State | None = None
    """How it said it ended."""
    said_at: float = 0.0
    beats: bool = True
    """Whether it is one of ours, which beats as long as it lives."""
    main: bool = True
    """False for a forked process, which does not decide how its run fares."""


def writer_state(facts: WriterFacts, now: float) -> State:
    """Tell how one writer fares; one that writes on after its end is running again."""
    if facts.said is not None and facts.seen <= facts.said_at + STALLED_SECONDS:
        return facts.said
    silence = now - facts.seen
    if not facts.beats:
        if silence < QUIET_SECONDS:
            return "running"
        return "stalled" if silence < GONE_SECONDS else "finished"
    if silence >= CRASHED_SECONDS:
        return "crashed"
    return "running" if silence < STALLED_SECONDS else "stalled"


def run_state(writers: Iterable[WriterFacts], now: float) -> State | None:
    """Sum up the main writers of the newest attempt, or all where only forked ones are known; None for none.

    A restart is a newer attempt, so a run that comes back is running again whatever its last attempt said.
    """
    everyone = list(writers)
    newest = max((facts.attempt for facts in everyone), default=0)
    present = [facts for facts in everyone if facts.attempt == newest]
    deciding = [facts for facts in present if facts.main] or present
    found = {writer_state(facts, now) for facts in deciding}
    return next((state for state in _ORDER if state in found), None)
