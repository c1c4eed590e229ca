"""The newest commit of each shard that is known to be complete: an answer without it comes from a replica behind."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

GRACE_SECONDS = 2.0
"""A commit that has been known for so long is on every replica that is current."""


@dataclass(slots=True)
class _Level:
    due: int = 0
    """The newest commit that every answer must have."""
    waiting: int = 0
    """The one that is next, and since when it waits."""
    since: float = 0.0
    newest: int = 0


class CommitLevels:
    """What each shard is known to have. Safe from several threads.

    A replica that has lost ZooKeeper, or was cut off in another way, does not know what it lacks. The hub that wrote a
    commit does, and so does a hub that once read it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._levels: dict[int, _Level] = {}

    def note(self, shard: int, commit: int) -> None:
        """Note that a commit of a shard is complete."""
        with self._lock:
            level = self._levels.setdefault(shard, _Level())
            level.newest = max(level.newest, commit)
            self._advance(level)

    def replace(self, shard: int, commit: int) -> None:
        """Note the newest commit that a shard has on any of its replicas, all of which answered; no other is due."""
        with self._lock:
            level = self._levels.setdefault(shard, _Level())
            level.due = min(level.due, commit)
            level.waiting = min(level.waiting, commit)
            level.newest = commit
            self._advance(level)

    def expected(self) -> dict[int, int]:
        """The commits that every answer must have by now, by shard; empty while none is known."""
        with self._lock:
            for level in self._levels.values():
                self._advance(level)
            return {shard: level.due for shard, level in self._levels.items() if level.due}

    def behind(self, found: Mapping[int, int]) -> list[int]:
        """The shards, beginning with 1, of which an answer lacks a commit, given the newest ones that it has."""
        return [shard + 1 for shard, commit in sorted(self.expected().items()) if found.get(shard, 0) < commit]

    def _advance(self, level: _Level) -> None:
        """Let the commit that waits become due, and the newest one wait: commits come faster than they become due."""
        now = self._clock()
        if level.waiting > level.due and now - level.since >= GRACE_SECONDS:
            level.due = level.waiting
        if level.waiting <= level.due < level.newest:
            level.waiting, level.since = level.newest, now
