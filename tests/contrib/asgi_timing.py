"""A pytest plugin that makes the suite of asgi independent of the machine's load: it waits for events, not for time."""

import asyncio
import sys
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator

LONGEST = 30.0
"""Seconds in which an application must answer or end."""
_receive = ApplicationCommunicator.receive_output


async def receive_output(self: Any, timeout: float = 1.0) -> Any:
    """Return the next message, however long it takes; time is over only when the application is idle or has ended."""
    ended = asyncio.ensure_future(asyncio.wait({self.future}, timeout=LONGEST))
    while self.output_queue.empty() and not ended.done() and not _is_idle(self):
        await asyncio.sleep(0)
    ended.cancel()
    return await _receive(self, timeout=timeout if self.output_queue.empty() else LONGEST)


def _is_idle(communicator: Any) -> bool:
    """Return whether the application waits for a message that was not sent."""
    return bool(communicator.input_queue.empty() and communicator.input_queue._getters)


@pytest.fixture(autouse=True)
def durations_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock that the middleware and its tests measure requests with: both read the same duration."""
    monkeypatch.setattr(ApplicationCommunicator, "receive_output", receive_output)
    for name in ("opentelemetry.instrumentation.asgi", "tests.test_asgi_middleware", "test_asgi_middleware"):
        if hasattr(sys.modules.get(name), "default_timer"):
            monkeypatch.setattr(f"{name}.default_timer", lambda: 1000.0)
