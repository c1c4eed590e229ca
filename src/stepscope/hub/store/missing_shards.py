"""Answers that lack shards, or rows of them: given only where the caller allows it, and never without saying so."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PARTIAL_HEADER = "X-Stepscope-Partial"
"""The HTTP header in which a hub names the shards of its store that are not in an answer."""
AWAY = frozenset((209, 210, 279))
"""ClickHouse's codes for a server that does not answer another one."""
BEHIND = 369
"""ClickHouse's code for a shard of which each replica takes itself to be behind."""


class MissingShards:
    """The shards that the answers of one request lack; their numbers begin with 1. Safe from several threads."""

    def __init__(self) -> None:
        self._numbers: frozenset[int] = frozenset()
        self.shards = 0
        """How many shards there are; 0 while none is missing."""

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def numbers(self) -> list[int]:
        """The missing ones, in order."""
        return sorted(self._numbers)

    def add(self, numbers: Iterable[int], shards: int) -> None:
        """Note that some of all shards are missing."""
        self._numbers, self.shards = self._numbers.union(numbers), shards

    def __str__(self) -> str:
        named = ", ".join(map(str, self.numbers))
        return f"shard{'s' if len(self._numbers) > 1 else ''} {named} of {self.shards}"


_allowed: ContextVar[MissingShards | None] = ContextVar("stepscope_missing_shards", default=None)


@contextmanager
def partial_answers(found: MissingShards | None = None) -> Iterator[MissingShards]:
    """Allow answers that lack shards, inside this context, and collect which."""
    found = MissingShards() if found is None else found
    token = _allowed.set(found)
    try:
        yield found
    finally:
        _allowed.reset(token)


def allowed() -> MissingShards | None:
    """Where to note the shards that an answer lacks; None where every answer must be complete or an error."""
    return _allowed.get()
