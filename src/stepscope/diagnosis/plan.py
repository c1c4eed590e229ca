"""How the keys of a record are processed, computed once for all records with the same keys."""

from typing import Any

from stepscope.diagnosis.detectors.desync import Shared
from stepscope.diagnosis.series import Series

EXPLAINING = frozenset(("lr", "stage", "loss_scale"))
"""Roles that explain other metrics of the same record, and are processed first."""


class Plan:
    """The keys of a record by how they are processed. Keys without a role are left out unless compared across ranks."""

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
