"""Pages of ranks: which ranks of a step are answered first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from stepscope.hub.questions.traces.stored_spans import RankSpans, extents_of, last_rank


@dataclass(frozen=True, slots=True)
class RankPage:
    """The part of the ranks that is asked for; `first` are ranks that come before all others."""

    limit: int
    offset: int = 0
    first: Sequence[int] = ()

    def choose(self, outline: Sequence[RankSpans], odd: Mapping[int, float]) -> list[int]:
        """Return the ranks of this page.

        After those that come first: the one that ended last, then by turns the oddest and the slowest. `odd` has how
        odd the values of each rank are.
        """
        extents, failed = extents_of(outline), _failures(outline)
        lasting = {rank: end - begin for rank, (begin, end) in extents.items()}
        ranks = sorted(extents.keys() | odd.keys())
        last = last_rank(extents)
        oddest = sorted(
            (rank for rank in ranks if failed.get(rank) or odd.get(rank)),
            key=lambda rank: (-failed.get(rank, 0), -odd.get(rank, 0.0), rank),
        )
        slowest = sorted(ranks, key=lambda rank: (-lasting.get(rank, 0), rank))
        by_turns = (rank for pair in zip_longest(oddest, slowest) for rank in pair)
        known = set(ranks)
        order = dict.fromkeys(rank for rank in (*self.first, last, *by_turns) if rank in known)
        return [*order][self.offset : self.offset + self.limit]


def _failures(outline: Iterable[RankSpans]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for each in outline:
        found[each.rank] += each.failed
    return found
