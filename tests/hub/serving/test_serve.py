"""The server's loop."""

import asyncio
import time

import uvicorn

from stepscope.hub.limits import Limits
from stepscope.hub.serving.serve import _Server


async def _ticks(seconds: float) -> tuple[int, float]:
    server = _Server(uvicorn.Config(lambda: None), Limits())
    ticks = 0

    async def tick(counter: int) -> bool:
        nonlocal ticks
        ticks += 1
        return server.should_exit

    server.on_tick = tick  # type: ignore[method-assign]
    serving = asyncio.create_task(server.main_loop())
    began = time.monotonic()
    await asyncio.sleep(seconds)
    found = ticks, time.monotonic() - began
    server.stop()
    await asyncio.wait_for(serving, 60)
    return found


def test_an_idle_server_rests() -> None:
    """It wakes up once a second, not ten times, and stops at once."""
    ticks, seconds = asyncio.run(_ticks(0.5))
    assert ticks <= 1 + seconds
