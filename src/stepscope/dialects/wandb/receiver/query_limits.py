"""Limits of GraphQL queries: the time and the reads of one query, and how many of a client run at once."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

from stepscope.dialects.wandb.receiver.graphql import GraphQLError
from stepscope.extend.receiver import Refusal, Refused

MAX_SECONDS = 5.0
"""Processor time of one query."""
MAX_READS = 2000
"""Runs whose history one query may read from the store."""
MAX_LISTS = 20
"""Lists of runs or projects in one query, aliases included; clients ask for one."""
MAX_WAITING = 32
"""Queries of one client that wait for their turn."""
CLIENT_LEFT = "a query whose client disconnected"


class QueryCost:
    """The cost of one query so far. `cancel` may be called from any thread, the rest from the one that executes it."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._began = 0.0
        self._reads = self._lists = 0
        self.cancelled = False

    def begin(self) -> None:
        """Start to measure, on the thread that executes the query."""
        self._began = self._clock()
        self.check()

    def cancel(self) -> None:
        """Make the query fail at its next check."""
        self.cancelled = True

    def check(self) -> None:
        """Raise GraphQLError when the query took too long, or its client disconnected."""
        if self.cancelled:
            raise GraphQLError("the client disconnected")
        if self._clock() - self._began > MAX_SECONDS:
            raise GraphQLError(
                f"the query takes more than {MAX_SECONDS:g} s of processor time: ask for fewer runs, fields or filters"
            )

    def read(self) -> None:
        """Count a run whose history is read, and check."""
        self._reads += 1
        if self._reads > MAX_READS:
            raise GraphQLError(f"the query reads the history of more than {MAX_READS} runs: ask for fewer at a time")
        self.check()

    def list(self) -> None:
        """Count a list of runs, and check."""
        self._lists += 1
        if self._lists > MAX_LISTS:
            raise GraphQLError(f"the query asks for more than {MAX_LISTS} lists of runs: ask for fewer at a time")
        self.check()


class ClientTurns:
    """Lets one query of each client run at a time, so that none waits for the queries of another."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._counts: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait until no other query of the client runs; Refused with 503 when too many of its queries wait."""
        count = self._counts.get(client, 0)
        if count > MAX_WAITING:
            raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many queries of this client at once", 1.0))
        self._counts[client] = count + 1
        try:
            async with self._locks.setdefault(client, asyncio.Lock()):
                yield
        finally:
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client], self._locks[client]
