"""What the keys of a record need, worked out once for all records that have the same keys."""

from typing import Any

from stepscope.diagnosis.detectors.desync import Shared
from stepscope.diagnosis.series import Series

EXPLAINING = frozenset(("lr", "stage", "loss_scale"))
"""Roles that explain what other metrics of the same record do: they are taken first."""


class Plan:
    """The keys of a record by what is done with them. Keys without a role are not in it, unless ranks share them."""

    __slots__ = ("counters", "done", "moves", "names", "shared", "watched", "world")

    def __init__(self, names: dict[str, str], world: int) -> None:
        self.names = names
        """The full key of each key."""
        self.world = world
        self.watched: tuple[tuple[str, Series, Any, tuple[Any, ...], tuple[Any, ...]], ...] = ()
        """Key, series, its `add`, and the `take` of the detectors for each value and for each block."""
        self.shared: list[tuple[str, Shared]] = []
        self.done = -1
        """How many shared keys were done when `shared` was made."""
        self.counters: tuple[str, ...] = ()
        """Keys that count lost records."""
        self.moves = any(not name.startswith(("system/", "stepscope/")) for name in names.values())
        """Whether a record like this is progress of the loop."""
