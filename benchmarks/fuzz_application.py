"""A hub's application in this process, called without sockets: routes, limits, receivers, journal and store."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from benchmarks.fuzz_requests import RUNS, Sent, request
from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import build_app

FAILED = 500
AT_ONCE = 96
"""Requests at a time: what is accepted together is synced together; readers refuse more than 130."""
REPORTED = 10_000
"""Requests between two reports."""
COMMIT_SECONDS = 5.0
"""Time between two commits to the store; twice a second they would take half of the CPU time."""
JSON = {"content-type": "application/json"}


class Outcome:
    """What was answered, by status, and the requests that failed or got no answer."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []

    def add(self, number: int, sent: Sent, status: int, said: bytes) -> None:
        """Count an answer; 0 is none."""
        self.statuses[status] += 1
        if not 0 < status < FAILED:
            self.failures.append(f"{number}: {sent.method} {sent.path[:80]} {status} {said[:200]!r}")

    @property
    def count(self) -> int:
        """How many requests were sent."""
        return sum(self.statuses.values())


class Application:
    """An open hub whose diagnosis and alerts do not run."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._app: Any = build_app(hub)

    async def ask(self, sent: Sent) -> tuple[int, bytes]:
        """Return the status and body of an answer; 0 when there is none."""
        status, parts = 0, []
        messages = iter(({"type": "http.request", "body": sent.body, "more_body": False},))

        async def receive() -> dict[str, Any]:
            return next(messages, {"type": "http.disconnect"})

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            else:
                parts.append(message.get("body", b""))

        try:
            await self._app(_scope(sent), receive, send)
        except Exception as error:  # Starlette raises again what it answered with 503
            parts.append(repr(error).encode())
        return status, b"".join(parts)

    async def make_runs(self, dialect: str) -> tuple[str, ...]:
        """Return the runs that requests are about; those of MLflow are named by the hub."""
        if dialect != "mlflow":
            return tuple(f"fuzz-{at}" for at in range(RUNS))
        place, body = "/api/2.0/mlflow/runs/create", b'{"experiment_id": "0"}'
        made = [await self.ask(Sent("POST", place, JSON, body)) for _ in range(RUNS)]
        return tuple(json.loads(answer)["run"]["info"]["run_id"] for _, answer in made)

    async def fuzz(
        self, dialect: str, numbers: range, outcome: Outcome, is_over: Callable[[], bool], report: Callable[[], None]
    ) -> None:
        """Send the requests of some numbers, many at a time."""
        runs = await self.make_runs(dialect)
        waiting = iter(numbers)

        async def send_some() -> None:
            for number in waiting:
                if is_over():
                    return
                sent = request(dialect, number, runs)
                outcome.add(number, sent, *await self.ask(sent))
                if outcome.count % REPORTED == 0:
                    report()

        await asyncio.gather(*(send_some() for _ in range(AT_ONCE)))


def _scope(sent: Sent) -> dict[str, Any]:
    path, _, query = sent.path.partition("?")
    headers = {"host": "127.0.0.1", "content-length": str(len(sent.body)), **sent.headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": sent.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 4318),
    }


@contextmanager
def open_application(folder: Path) -> Iterator[Application]:
    """Open a hub on a folder; only its journal and store are started."""
    options = HubOptions(home=folder / "home")
    options.home.mkdir(parents=True)
    home = HubHome(options.home)
    hub = Hub(options, home, open_home_store(home, "", ""), Tokens(options.home / "tokens.json"))
    try:
        made = Application(hub)
        hub.pump.pace = COMMIT_SECONDS
        hub.pump.start()
        yield made
    finally:
        hub.close()
