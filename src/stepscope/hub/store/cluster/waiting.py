"""Waits for replicas that are behind and for rows that are being deleted, for a limited time."""

import time
from collections.abc import Callable, Sequence

from stepscope.hub.store.cluster import dialect
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import EngineError

UNFINISHED = 341
SETTLE_SECONDS = 10.0
MUTATION_SECONDS = 20.0
"""How long rows that are being deleted are waited for. The server may delete them later; the caller tries again."""
_LONGEST_PAUSE = 0.5


class Unfinished(EngineError):
    """What was waited for takes longer; it may be done later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, UNFINISHED)


def catch_up(query: Callable[[str], Answer], tables: Sequence[str], sleep: Callable[[float], None]) -> None:
    """Wait until the replicas that a query reads have all rows of some tables, as far as they know.

    They are asked twice: while an entry moves from the log to the queue of a replica, neither of them shows it.
    """
    wait_until_none(
        lambda: (
            query(dialect.replicas_behind(tables)).one("behind") or query(dialect.replicas_behind(tables)).one("behind")
        ),
        lambda left: f"{left} replicated tables have not caught up, or cannot write: is a server or ZooKeeper away?",
        SETTLE_SECONDS,
        sleep,
    )


def mutate(
    query: Callable[[str], Answer],
    change: Callable[[], None],
    table: str,
    sleep: Callable[[float], None],
    seconds: float = MUTATION_SECONDS,
) -> None:
    """Change rows of a replicated table and wait until it is done here; EngineError, which passes, if it takes long.

    Repeated after that, it waits for the change under way. One that has not been done for a minute is asked for anew:
    without ZooKeeper a server may lose it, or leave it undone.
    """

    def finish(ready: Callable[[Answer], bool]) -> None:
        wait_until_none(
            lambda: int(not ready(query(dialect.mutations(table)))),
            lambda left: f"the rows of {table} are still being deleted",
            seconds,
            sleep,
        )

    finish(lambda found: not found.one("recent"))
    before = query(dialect.mutations(table)).one("newest")
    change()
    # A replica lists a change some time after it took it.
    finish(lambda found: found.one("newest") != before and not found.one("left"))


def wait_until_none(
    count: Callable[[], int], why: Callable[[int], str], seconds: float, sleep: Callable[[float], None]
) -> None:
    """Wait until a count is 0; Unfinished if that takes too long."""
    pause, deadline = 0.01, time.monotonic() + seconds
    while left := count():
        if time.monotonic() > deadline:
            raise Unfinished(why(left))
        sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
