"""Futures: work that a request asked for and a later one fetches; how it ended is kept in Redis."""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from stepscope.training.service import correlate, get_metrics, get_tracer

tracer = get_tracer("tuft.futures")


class FutureStore:
    """Runs operations one after the other for each store, and keeps their results."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    async def enqueue(self, operation_type: str, model_id: str, work: Callable[[], Awaitable[Any]]) -> str:
        """Take an operation and give the id of its future at once."""
        request_id = uuid.uuid4().hex
        metrics = get_metrics()
        metrics.futures_created.add(1, {"operation_type": operation_type, "model_id": model_id})
        metrics.futures_queue_length.add(1, {"queue_state": "active"})
        await self._put(request_id, "pending", None)
        with correlate(request_id=request_id, operation_type=operation_type, model_id=model_id):
            task = asyncio.create_task(self._execute(request_id, operation_type, work, time.perf_counter()))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return request_id

    async def retrieve(self, request_id: str) -> dict[str, Any] | None:
        """How a future stands; None for one that nobody made."""
        found = await self._redis.get(f"future:{request_id}")
        return None if found is None else json.loads(found)

    async def drain(self) -> None:
        """Wait for all that was taken."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _execute(self, request_id: str, operation_type: str, work: Any, asked: float) -> None:
        metrics, kind = get_metrics(), {"operation_type": operation_type}
        async with self._turn:
            began = time.perf_counter()
            metrics.futures_wait_time.record(began - asked, kind)
            metrics.futures_queue_length.add(-1, {"queue_state": "active"})
            status, result = "ready", None
            try:
                with tracer.start_as_current_span("future_store.execute_operation"):
                    result = await work()
            except Exception as error:  # the span has it; the client is told
                status, result = "failed", f"{type(error).__name__}: {error}"
            metrics.futures_execution_time.record(time.perf_counter() - began, kind)
            metrics.futures_completed.add(1, {**kind, "status": status})
        await self._put(request_id, status, result)

    async def _put(self, request_id: str, status: str, result: Any) -> None:
        await self._redis.set(f"future:{request_id}", json.dumps({"status": status, "result": result}))
