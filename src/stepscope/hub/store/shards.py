"""Shards of a store: the condition for the rows of one, and the outcome for a batch whose shard is unavailable."""

from dataclasses import dataclass

from stepscope.hub.store.schema import BY_SERIES
from stepscope.model.errors import Retry

COPIED_TABLE = "SELECT count() AS held FROM system.tables WHERE database = currentDatabase() AND name = 'migrations'"
"""Whether the store is a copy of another one."""


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


class ShardUnavailable(Retry):
    """A batch was not accepted because its shard takes nothing at present; others may."""

    def __init__(self, reason: str, shard: int, after: float = 5.0) -> None:
        super().__init__(reason, after)
        self.shard = shard
