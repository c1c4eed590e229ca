"""Lost records, from the recorder's counters of dropped and rejected records."""

from dataclasses import dataclass, field
from typing import ClassVar

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind

LOST = Kind("lost_records", "WARN", "more was recorded than the quota allows", "Raise the quota, or record less.")
OUTCOMES = ("dropped", "rejected")
_REJECTED = ("values that cannot be recorded", "See the counts by reason in `stepscope show`.")
_REASONS = {
    "full": (
        "the disk was full when the process ended",
        "Free space on the disk of STEPSCOPE_HOME; what the process recorded last is lost, but for its end.",
    ),
    "datagrams": (
        "UDP lost datagrams between the client and the hub",
        "Send over a Unix stream socket, or more lines in each datagram: let the client buffer.",
    ),
    "unsent_datagrams": (
        "the client dropped datagrams because its socket was full",
        "Send over a Unix stream socket, or more lines in each datagram: let the client buffer.",
    ),
}
"""Cause and advice by drop reason, where they differ from the kind's; the first that is found counts."""
MAX_NAMED = 8
"""The most reasons that the text names."""
NOUNS = {"dropped": "record", "rejected": "value"}


@dataclass(slots=True)
class _Lost:
    """What one rank lost in one way: since when, and how much by reason."""

    key: str
    step: int | None
    time: int
    counts: dict[str, float] = field(default_factory=dict)

    def reasons(self) -> str:
        """Name the reasons, the most frequent first, with their counts if there are several."""
        ranked = sorted(self.counts.items(), key=lambda each: -each[1])
        if len(ranked) == 1:
            return ranked[0][0]
        named = ", ".join(f"{count:.0f} {reason}" for reason, count in ranked[:MAX_NAMED])
        left = ranked[MAX_NAMED:]
        return f"{named}, {sum(count for _, count in left):.0f} for {len(left)} more reasons" if left else named


class LostRecords:
    """Watches the counters `stepscope/dropped/...` and `stepscope/rejected/...` of all ranks."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOST,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._lost: dict[tuple[int, int, str], _Lost] = {}
        """By attempt, rank and outcome."""

    def watches(self, key: str) -> bool:
        """Return whether a key is one of those counters."""
        return key.startswith("stepscope/") and key.split("/")[1] in OUTCOMES

    def take(self, rank: int, key: str, step: int | None, time: int, value: float) -> Finding | None:
        """Evaluate a counter. A later finding of the same rank and outcome replaces the earlier ones."""
        _, outcome, *rest = key.split("/")
        reason = "/".join(rest) or "no reason given"
        place = (self._run.attempt, rank, outcome)
        if value <= 0 or (place in self._lost and self._lost[place].counts.get(reason) == value):
            return None
        lost = self._lost.setdefault(place, _Lost(key, step, time))
        lost.counts[reason] = value
        total = sum(lost.counts.values())
        noun = f"{NOUNS[outcome]}{'s were' if total != 1 else ' was'}"
        found = {each.rpartition("/")[2] for each in lost.counts}
        cause, advice = next((words for each, words in _REASONS.items() if each in found), ("", ""))
        cause, advice = _REJECTED if outcome == "rejected" else (cause, advice)
        return LOST.finding(
            f"{total:.0f} {noun} {outcome} on rank {rank} ({lost.reasons()})",
            lost.time,
            step=lost.step,
            ranks=(rank,),
            key=lost.key,
            value=total,
            expected=(0.0, 0.0),
            cause=cause,
            advice=advice,
        )
