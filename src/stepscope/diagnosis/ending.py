"""How the processes of an attempt ended, and which of these ends is the root of the others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from stepscope.diagnosis.failure_classes import FailureClass, class_of

How = Literal["exception", "signal", "vanished", "status"]
ENDED_BY = frozenset(("SIGTERM", "SIGINT", "SIGHUP"))
"""Signals by which launchers, schedulers and people end a process in order."""
UNSEEN_NS = 12_000_000_000
"""A process that vanished was alive at most this long after its last record: it writes a heartbeat every 5 s."""
AT_ONCE_NS = 20_000_000
"""Processes whose ends were seen within this time ended at once; launchers look every tenth of a second."""
TOGETHER_NS = 2_000_000_000
"""Processes that were killed by the same signal within this time were killed together."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of one process that did not finish."""

    rank: int
    time: int
    how: How
    words: str
    """The exception, the signal, or the status."""
    span: str | None = None
    failure: FailureClass | None = None
    seen: bool = False
    """Whether another process saw it end, so that the time is that of the end."""

    @property
    def follows(self) -> bool:
        """Whether such an end follows from that of another process, as a rule."""
        if self.how == "signal":
            return self.words in ENDED_BY
        return self.failure is not None and self.failure.role == "cascade"


def end_of(rank: int, time: int, how: How, words: str, span: str | None = None, *, seen: bool = False) -> End:
    """Return an end with the class of its failure."""
    return End(rank, time, how, words, span, None if how == "vanished" else class_of(words), seen)


def root_of(ends: Sequence[End]) -> list[End]:
    """Return the end that came first and follows from no other; several if processes ended together.

    The time of an exception or a signal is exact; a process that vanished is blamed only if it did so clearly before.
    """
    known = [each for each in ends if each.how in ("exception", "signal") and not each.follows]
    vanished = [each for each in ends if each.how == "vanished"]
    if known:
        first = min(known, key=_order)
        before = [each for each in vanished if each.time < first.time - UNSEEN_NS]
        return before or _with_peers(first, known)
    if vanished:
        first = min(vanished, key=_order)
        all_seen = all(each.seen for each in vanished)
        return [each for each in vanished if each.time <= first.time + AT_ONCE_NS] if all_seen else vanished
    first = min([each for each in ends if each.how == "status"] or ends, key=_order)
    return _with_peers(first, ends)


def _order(end: End) -> tuple[int, int]:
    return end.time, end.rank


def _with_peers(first: End, ends: Iterable[End]) -> list[End]:
    """Return an end with those that the same signal ended with it."""
    if first.how != "signal":
        return [first]
    within = None if first.follows else first.time + TOGETHER_NS
    same = [each for each in ends if each.how == "signal" and each.words == first.words]
    return sorted((each for each in same if within is None or each.time <= within), key=_order)


def consequences(ends: Iterable[End], root: Sequence[End]) -> list[str]:
    """Return what became of the other processes, in words, one sentence for those that ended alike."""
    alike: dict[tuple[How, str], list[int]] = {}
    for each in sorted(ends, key=_order):
        if each not in root and each.how != "status":
            alike.setdefault((each.how, each.words), []).append(each.rank)
    said = []
    for (how, words), ranks in alike.items():
        who, were = ranks_in_words(sorted(ranks)), "was" if len(ranks) == 1 else "were"
        if how == "exception":
            said.append(f"{words} on {who}")
        elif how == "signal":
            said.append(f"{who} {were} {'ended' if words in ENDED_BY else 'killed'} by {words} afterwards")
        else:
            said.append(f"{who} died without an exit record afterwards")
    return said


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Format ranks for a sentence, at most eight of them."""
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}{more}"
