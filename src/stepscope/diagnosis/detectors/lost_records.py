"""Lost records, from the recorder's counters of dropped and rejected records."""

from typing import ClassVar

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind

LOST = Kind("lost_records", "WARN", "more was recorded than the quota allows", "Raise the quota, or record less.")
OUTCOMES = ("dropped", "rejected")
_REJECTED = ("values that cannot be recorded", "See the counts by reason in `stepscope show`.")
_REASONS = {
    "datagrams": (
        "UDP lost datagrams between the client and the hub",
        "Send over a Unix stream socket, or more lines in each datagram: let the client buffer.",
    ),
    "unsent_datagrams": (
        "the client dropped datagrams because its socket was full",
        "Send over a Unix stream socket, or more lines in each datagram: let the client buffer.",
    ),
}
"""Cause and advice by drop reason, where they differ from the kind's."""


class LostRecords:
    """Watches the counters `stepscope/dropped/...` and `stepscope/rejected/...` of all ranks."""

    KINDS: ClassVar[tuple[Kind, ...]] = (LOST,)

    def __init__(self, run: RunState) -> None:
        self._reported: set[tuple[int, str]] = set()

    def watches(self, key: str) -> bool:
        """Return whether a key is one of those counters."""
        return key.startswith("stepscope/") and key.split("/")[1] in OUTCOMES

    def take(self, rank: int, key: str, step: int | None, time: int, value: float) -> Finding | None:
        """Evaluate a counter."""
        _, outcome, *reason = key.split("/")
        if value <= 0 or (rank, outcome) in self._reported:
            return None
        self._reported.add((rank, outcome))
        cause, advice = _REJECTED if outcome == "rejected" else _REASONS.get("/".join(reason), ("", ""))
        return LOST.finding(
            f"{value:.0f} record{'s' * (value != 1)} {'were' if value != 1 else 'was'} {outcome} on rank {rank} "
            f"({'/'.join(reason) or 'no reason given'})",
            time,
            step=step,
            ranks=(rank,),
            key=key,
            value=value,
            expected=(0.0, 0.0),
            cause=cause,
            advice=advice,
        )
