"""A few threads with a bounded queue, for work that would keep the event loop waiting."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import ParamSpec, TypeVar

from stepscope.hub.refusals import Refusal, Refused

Params = ParamSpec("Params")
Result = TypeVar("Result")


class Workers:
    """Runs calls on threads of its own; the event loop alone may use it."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, f"stepscope-{name}")
        self._most = threads + waiting
        self._under_way = 0

    async def run(self, call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Run a call on a thread; Refused with 503 when too many wait already.

        A caller that is cancelled leaves its call to finish, and the call goes on counting until then.
        """
        if self._under_way >= self._most:
            raise Refused(Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once", 1.0))
        future = self._pool.submit(call, *args, **kwargs)
        self._under_way += 1
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: _soon(loop, self._count_down))
        return await asyncio.shield(asyncio.wrap_future(future))

    def _count_down(self) -> None:
        self._under_way -= 1

    def close(self, *, wait: bool = True) -> None:
        """Take no more calls and drop those that wait; `wait` for those under way."""
        self._pool.shutdown(wait=wait, cancel_futures=True)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
