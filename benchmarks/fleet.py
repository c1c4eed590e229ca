"""A fleet: a thousand writers of a hundred hosts, half over journals and half over OTLP, with elastic restarts."""

import argparse
import bisect
import http.client
import json
import os
import random
import resource
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from stepscope.journal.layout import writer_folder
from stepscope.journal.segments import Journal
from stepscope.model import names
from stepscope.model.ports import Writer
from stepscope.model.records import Metric
from stepscope.wire.otlp import names as otlp_names
from tests.hub.conftest import RunningHub
from tests.hub.otlp_bodies import attribute

KEYS = ("loss", "grad_norm", "tokens_per_s", "step_ms", "memory")
_pack = msgspec.msgpack.Encoder().encode


@dataclass
class Rank:
    """One process of a run; its records are those of an attempt."""

    run: str
    rank: int
    host: int
    world: int
    attempt: int = 1
    step: int = 0
    sent: int = 0
    journal: Journal | None = None

    def restart(self, world: int) -> None:
        """Begin the next attempt as a new process; the one before ends without a word."""
        self.journal = None
        self.attempt += 1
        self.world = world


@dataclass
class Fleet:
    """The ranks, and how many points were acknowledged by when."""

    ranks: list[Rank]
    acknowledged: int = 0
    refused: int = 0
    history: list[tuple[float, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, rank: Rank) -> None:
        """Count the points of one step."""
        with self.lock:
            rank.sent += len(KEYS)
            self.acknowledged += len(KEYS)


def journal_step(home: Path, rank: Rank) -> None:
    """Append one step to the journal of a rank, as its SDK does."""
    if rank.journal is None:
        name = f"r{rank.rank}-a{rank.attempt}-host{rank.host}-{1000 + rank.rank}-f1ee7"
        writer = Writer(
            id=name, run=rank.run, project="fleet", rank=rank.rank, world_size=rank.world, attempt=rank.attempt,
            host=f"host{rank.host}", pid=1000 + rank.rank, wall_ns=time.time_ns(),
        )  # fmt: skip
        rank.journal = Journal(writer_folder(home, rank.run, name), writer)
    values: dict[str, Any] = {key: float(rank.step) for key in KEYS}
    rank.journal.append([_pack(Metric(time.time_ns(), rank.step, None, None, values))])


def otlp_step(rank: Rank) -> bytes:
    """The request with one step of a rank."""
    request = ExportMetricsServiceRequest()
    part = request.resource_metrics.add()
    told: dict[str, str | int] = {
        "service.name": "fleet",
        "host.name": f"host{rank.host}",
        "service.instance.id": f"{rank.run}-{rank.rank}-{rank.attempt}",
        names.ATTR_RUN_ID: rank.run,
        names.ATTR_RANK: rank.rank,
        names.ATTR_WORLD_SIZE: rank.world,
        otlp_names.ATTR_ATTEMPT: rank.attempt,
    }
    part.resource.attributes.extend(attribute(key, value) for key, value in told.items())
    scope, now = part.scope_metrics.add(), time.time_ns()
    for key in KEYS:
        point = scope.metrics.add(name=key).gauge.data_points.add(time_unix_nano=now, as_double=float(rank.step))
        point.attributes.append(attribute(names.ATTR_STEP, rank.step))
    return request.SerializeToString()


def send_over_otlp(hub: RunningHub, fleet: Fleet, work: "SimpleQueue[Rank | None]") -> None:
    """Send steps over one connection until there are none; a step that is refused is sent again."""
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=300)
    while (rank := work.get()) is not None:
        connection.request("POST", "/v1/metrics", otlp_step(rank), {"content-type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            rank.step += 1
            fleet.acknowledge(rank)
        else:
            fleet.refused += 1
            time.sleep(float(answer.headers.get("retry-after") or 1))
            work.put(rank)


def watch(hub: RunningHub, fleet: Fleet, stop: threading.Event, seen: list[tuple[float, int, int]]) -> None:
    """Note four times a second how much is stored and how much memory the hub has, beside what was acknowledged."""
    assert hub.process is not None
    while True:
        fleet.history.append((time.monotonic(), fleet.acknowledged))
        receivers = hub.health()["receivers"].values()
        records = sum(each.get("stored", 0) for each in receivers)
        seen.append((time.monotonic(), records, _memory(hub.process.pid)))
        if stop.wait(0.25):
            return


def _memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def restarts(ranks: Sequence[Rank], chance: float) -> Iterator[int]:
    """Restart some runs: a host dies, and the run goes on with all of its ranks, in a world of another size."""
    for run in {rank.run for rank in ranks}:
        if random.random() < chance:
            members = [rank for rank in ranks if rank.run == run]
            world = random.choice((len(members), len(members) - 10))
            for rank in members:
                rank.restart(world)
            yield len(members)


def lags(fleet: Fleet, seen: Sequence[tuple[float, int, int]], per_point: float) -> list[float]:
    """How long after it was acknowledged everything was stored, for each moment that was noted."""
    stored = [records * per_point for _, records, _ in seen]
    found = []
    for moment, acknowledged in fleet.history:
        at = bisect.bisect_left(stored, acknowledged)
        found.append(max(seen[at][0] - moment, 0.0) if at < len(seen) else float("inf"))
    return sorted(found)


def run_fleet(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run the fleet once and return what was measured."""
    random.seed(1)
    hub = RunningHub(folder / "home", env={"STEPSCOPE_STORE": given.store} if given.store else {}).start()
    per_run = given.writers // given.runs
    ranks = [
        Rank(f"fleet-{index % given.runs}", index // given.runs, index * given.hosts // given.writers, per_run)
        for index in range(given.writers)
    ]
    fleet, work = Fleet(ranks), SimpleQueue[Rank | None]()
    seen: list[tuple[float, int, int]] = []
    stop = threading.Event()
    threads = [threading.Thread(target=send_over_otlp, args=(hub, fleet, work)) for _ in range(8)]
    watching = threading.Thread(target=watch, args=(hub, fleet, stop, seen))
    for thread in (*threads, watching):
        thread.start()
    began, restarted = time.monotonic(), 0
    for turn in range(given.steps):
        for rank in ranks:
            if rank.host % 2:
                work.put(rank)
            else:
                journal_step(hub.home, rank)
                rank.step += 1
                fleet.acknowledge(rank)
        left = began + given.seconds * (turn + 1) / given.steps - time.monotonic()
        while work.qsize() or left > 0:
            time.sleep(max(min(left, 0.05), 0.01))
            left = began + given.seconds * (turn + 1) / given.steps - time.monotonic()
        restarted += sum(restarts(ranks, given.restarts / given.steps))
    for _ in threads:
        work.put(None)
    for thread in threads:
        thread.join()
    found = _wait_until_stored(hub, fleet, given.patience)
    stop.set()
    watching.join()
    hub.kill()
    sent = {run: sum(rank.sent for rank in ranks if rank.run == run) for run in {rank.run for rank in ranks}}
    points_per_record = fleet.acknowledged / max(seen[-1][1], 1)
    waited = lags(fleet, seen, points_per_record)
    memory = [each for _, _, each in seen]
    return {
        "writers": given.writers, "hosts": given.hosts, "runs": given.runs, "processes": given.writers + restarted,
        "points": fleet.acknowledged, "requests refused and repeated": fleet.refused,
        "seconds": round(time.monotonic() - began, 1),
        "lost": sum(max(count - found.get(run, 0), 0) for run, count in sent.items()),
        "twice": sum(max(found.get(run, 0) - count, 0) for run, count in sent.items()),
        "lag p50": round(waited[len(waited) // 2], 2), "lag p99": round(waited[int(len(waited) * 0.99)], 2),
        "lag most": round(waited[-1], 2),
        "memory at a third": memory[len(memory) // 3] >> 20, "memory at the end": memory[-1] >> 20,
        "memory most": max(memory) >> 20, "load": os.getloadavg()[0],
    }  # fmt: skip


def _wait_until_stored(hub: RunningHub, fleet: Fleet, seconds: float) -> dict[str, int]:
    """Wait until the hub shows all points, and return those of each run."""
    deadline = time.monotonic() + seconds
    while True:
        found = {
            row["id"]: row["counts"]["points"] for row in hub.request("GET", "/api/runs?limit=1000").json()["runs"]
        }
        if sum(found.values()) >= fleet.acknowledged or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what was measured as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=1000)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=120, help="steps of each writer: an hour at one in 30 s")
    parser.add_argument("--seconds", type=float, default=240.0, help="how long that hour takes")
    parser.add_argument("--restarts", type=float, default=3.0, help="elastic restarts of a run in that hour")
    parser.add_argument("--store", default="", help="the address of a ClickHouse server or cluster")
    parser.add_argument("--patience", type=float, default=300.0)
    given = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run_fleet(given, Path(folder))))


if __name__ == "__main__":
    main()
