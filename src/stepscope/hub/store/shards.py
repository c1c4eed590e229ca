"""Shards of a store: which one a run is on, and the condition for the rows of one."""

import hashlib
from dataclasses import dataclass

from stepscope.hub.store.schema import BY_SERIES


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the shards of a store; the numbers of its runs modulo `count` are `index`."""

    index: int = 0
    count: int = 1

    def condition(self, table: str) -> str:
        """The SQL condition for the rows of this shard in a table."""
        if self.count == 1:
            return "1"
        number = "bitShiftRight(series, 32)" if table in BY_SERIES else "run"
        return f"{number} % {self.count} = {self.index}"

    def number_from(self, least: int) -> int:
        """The lowest number of a run on this shard that is not below another number."""
        return least + (self.index - least) % self.count


WHOLE = Shard()
"""The one shard of a store that is not divided."""


def shard_of(run: str, shards: int) -> int:
    """The index of the shard of a run: a hash of its id, so that every hub finds the same one without asking."""
    if shards == 1:
        return 0
    digest = hashlib.md5(run.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big") % shards
