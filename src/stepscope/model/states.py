"""Run states, computed from what each writer reported and how long it has been silent; CLI and hub both use this."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stepscope.model import names

State = Literal["importing", "running", "stalled", "crashed", "finished", "failed", "preempted"]
WriterState = State | Literal["ended"]
"""`ended` is a forked or joined process that is gone: it never reports how it ended."""
ENDED: tuple[State, ...] = ("finished", "failed", "preempted", "crashed")
"""What a writer can report of its own end."""
UNFINISHED: tuple[State, ...] = ("running", "stalled", "importing")
"""The states of a run that may still write, which cannot be deleted."""

BEAT_SECONDS = 5.0
STALLED_SECONDS, CRASHED_SECONDS = 20.0, 120.0
"""Silence of a writer that sends a heartbeat every 5 s: a few missed, then too many; in proportion for others."""
QUIET_SECONDS, GONE_SECONDS = 300.0, 3600.0
"""The same for a writer without heartbeats, such as an OpenTelemetry exporter, which can end without an exit record."""

_ORDER: tuple[WriterState, ...] = (
    *("failed", "crashed", "stalled", "running", "importing", "preempted", "finished", "ended"),
)
"""The first of these that any rank is in is the state of the run: what needs attention comes first."""


@dataclass(frozen=True, slots=True)
class WriterFacts:
    """What is known of one process of a run; times in seconds of the reader's clock."""

    attempt: int
    seen: float
    """The time of its last record."""
    reported_end: State | None = None
    """How it reported its end."""
    reported_at: float = 0.0
    beats: bool = True
    """Whether it sends heartbeats, as our own SDK does."""
    interval: float = BEAT_SECONDS
    """Seconds between its heartbeats."""
    main: bool = True
    """False for a forked or joined process, which does not decide the state of its run."""
    rank: int = 0
    touched: float = 0.0
    """When its journal last changed; 0 where there is no journal at hand."""
    alive: bool | None = None
    """Whether its process exists; None when unknown, such as on another host."""
    unread: bool = False
    """Whether there are records of it that the reader has not read yet."""


def beat_interval(attrs: Mapping[str, Any]) -> float:
    """The heartbeat interval of a client, from its writer or its start."""
    given = attrs.get(names.ATTR_HEARTBEAT)
    return min(max(float(given), BEAT_SECONDS), QUIET_SECONDS) if isinstance(given, (int, float)) else BEAT_SECONDS


def ending_of(word: object) -> State:
    """The state that a reported end means; an unknown word means finished."""
    text = str(word).lower()
    state_name = text if text in ENDED else names.ENDINGS.get(text)
    return next((state for state in ENDED if state == state_name), "finished")


def writer_state(facts: WriterFacts, now: float) -> WriterState:
    """Return the state of one writer; one that sends heartbeats after its end is running again.

    One without heartbeats stays ended, as a run of a foreign client does to which a value is added later: a client that
    resumes such a run starts a new attempt.
    """
    if facts.reported_end is not None and (not facts.beats or facts.seen <= facts.reported_at + STALLED_SECONDS):
        return facts.reported_end
    if facts.alive is False:
        return _unread(facts, now) if facts.unread else _gone(facts)
    silence = now - max(facts.seen, facts.touched)
    slow = facts.interval / BEAT_SECONDS
    late, lost = (STALLED_SECONDS * slow, CRASHED_SECONDS * slow) if facts.beats else (QUIET_SECONDS, GONE_SECONDS)
    if silence < late:
        return "running"
    if facts.unread:
        return "importing"
    return "stalled" if facts.alive or silence < lost else _gone(facts)


def _unread(facts: WriterFacts, now: float) -> WriterState:
    """The state of a process that is gone: as before while the reader keeps up, since its end is read in a moment."""
    return "running" if now - facts.seen < STALLED_SECONDS else "importing"


def _gone(facts: WriterFacts) -> WriterState:
    if not facts.beats:
        return "finished"
    return "crashed" if facts.main else "ended"


def run_state(writers: Iterable[WriterFacts], now: float) -> State | None:
    """Sum up the main writers of the newest attempt, or all where only forked ones are known; None for none.

    A restart is a newer attempt, so a run that comes back is running again whatever its last attempt reported.
    """
    all_writers = list(writers)
    newest = max((facts.attempt for facts in all_writers), default=0)
    present = [facts for facts in all_writers if facts.attempt == newest]
    deciding = [facts for facts in present if facts.main] or present
    return summed_up({writer_state(facts, now) for facts in deciding})


def summed_up(states: Collection[WriterState]) -> State | None:
    """The state of a run whose writers are in these; None for none."""
    state = next((state for state in _ORDER if state in states), None)
    return "finished" if state == "ended" else state
