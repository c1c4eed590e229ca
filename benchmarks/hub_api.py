"""Measure the hub's answers at the API: long series with a spike, a table of 5,000 runs, one step of 8 ranks."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from stepscope.hub.api.routes import Source, api_routes
from stepscope.hub.live import Live
from stepscope.hub.security.gate import ACCESS
from stepscope.hub.security.guard import Access
from stepscope.hub.store.store import Store, open_store
from stepscope.model.ports import Batch
from stepscope.model.records import Event, Metric, Record, Span
from stepscope.model.writer import Writer

SECOND = 10**9
START = 1_790_000_000 * SECOND
CHUNK = 100_000
QUESTIONS = (
    ("1 M points", "/api/runs/one/series?key=trainer/loss", 100),
    ("10 M points", "/api/runs/ten/series?key=trainer/loss", 300),
    ("5,000 runs", "/api/runs?limit=100&metric=loss&filter=status=finished", 300),
    ("a step of 8 ranks", "/api/runs/big/steps/{middle}", 150),
)
"""What is asked, and the milliseconds that it may take."""
PHASES = (("train.step", 0, 95), ("train.forward", 5, 30), ("train.backward", 36, 45), ("train.optimizer_step", 82, 12))


def fill(store: Store, scale: float) -> None:
    """Write the runs; a scale below 1 makes them smaller."""
    for run, points in (("one", 1_000_000), ("ten", 10_000_000)):
        _series(store, run, int(points * scale))
    _table(store, int(5000 * scale))
    _ranks(store, int(100_000 * scale))


def _series(store: Store, run: str, points: int) -> None:
    writer = Writer(id="w", run=run, project="bench", wall_ns=START)
    for first in range(0, points, CHUNK):
        steps = range(first, min(points, first + CHUNK))
        records: list[Record] = [
            Metric(
                START + step * 10**7, step, None, "trainer", {"loss": 1e6 if step == points // 3 else step % 97 / 97}
            )
            for step in steps
        ]
        store.write(Batch(writer, first // CHUNK + 1, records))


def _table(store: Store, runs: int) -> None:
    batches = [
        Batch(Writer(id="w", run=f"run-{n}", project="many", wall_ns=START), 1, list(_run(n))) for n in range(runs)
    ]
    for first in range(0, runs, 500):
        store.write_many(batches[first : first + 500])


def _run(number: int) -> Iterator[Record]:
    begin = START + number * SECOND
    config = {"lr": 10.0 ** -(number % 6), "layers": number % 40, "optim": {"name": "adam"}}
    yield Event(begin, None, None, None, None, 9, "train.run.started", {"config": config})
    for step in range(5):
        yield Metric(
            begin + step * SECOND, step, None, "trainer", {f"k{key}": float(step) for key in range(20)} | {"loss": 0.5}
        )
    yield Event(begin + 9 * SECOND, None, None, None, None, 9, "train.run.finished", {"status": "finished"})


def _ranks(store: Store, steps: int) -> None:
    for first in range(0, steps, 2500):
        batches = []
        for rank in range(8):
            writer = Writer(id=f"w{rank}", run="big", project="bench", rank=rank, world_size=8, wall_ns=START)
            records = [record for step in range(first, min(steps, first + 2500)) for record in _step(step, rank)]
            batches.append(Batch(writer, first // 2500 + 1, records))
        store.write_many(batches)


def _step(step: int, rank: int) -> Iterator[Record]:
    begin = START + step * 10**8
    yield Metric(
        begin, step, None, "trainer", {"loss": 2 - step / 1e6, "lr": 3e-4, "grad_norm": step % 7 / 7, "tps": 9e3}
    )
    trace = bytes([rank + 1]) * 8 + (step + 1).to_bytes(8, "big")
    ids = [bytes([rank + 1, place]) + step.to_bytes(6, "big") for place in range(len(PHASES))]
    for place, (name, offset, lasts) in enumerate(PHASES):
        times = (begin + offset * 10**6, lasts * 10**6 + step % 1000)
        yield Span(*times, step, None, trace, ids[place], ids[0] if place else None, name, attrs={"batch": 32})


async def ask(store: Store, scale: float, rounds: int) -> int:
    """Ask every question several times over and print the times; tell how many were too slow."""
    routes = api_routes(Source(store.engine, lambda run: None, Live(), ThreadPoolExecutor(4), "bench"))
    inner = Starlette(routes=routes)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[ACCESS] = Access()
        await inner(scope, receive, send)

    late = 0
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://hub") as client:
        for name, path, most in QUESTIONS:
            times = []
            for _ in range(rounds):
                began = time.perf_counter()
                response = await client.get(path.format(middle=int(50_000 * scale)))
                times.append((time.perf_counter() - began) * 1e3)
                assert response.status_code == 200, response.text
            if "points" in name:
                assert 1e6 in response.json()["series"][0]["columns"]["max"], "the spike is gone"
            late += statistics.median(times) > most
            print(f"{name:<20} median {statistics.median(times):7.1f} ms  min {min(times):7.1f} ms  (at most {most})")
    return late


def main() -> int:
    """Make a store in a temporary folder, or use one that was kept, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="make everything smaller, such as 0.01")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--keep", type=Path, help="a folder for the store; one that exists is asked as it is")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = args.keep or Path(folder) / "store"
        fresh = not place.exists()
        store = open_store(place)
        if fresh:
            fill(store, args.scale)
        late = asyncio.run(ask(store, args.scale, args.rounds))
        store.close()
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
