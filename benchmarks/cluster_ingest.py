"""Writers through several hubs, a reader that checks every answer, and the count of what each replica holds."""

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.server import Server
from stepscope.testing.clickhouse import ServerProcess
from stepscope.testing.clickhouse_cluster import ClusterProcesses
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub

POINTS = 20
_FAILED = (OSError, http.client.HTTPException)


class Writer:
    """Sends points of one run through any hub until it is stopped; what is not acknowledged is not sent again."""

    def __init__(self, hubs: Sequence[RunningHub], run: str) -> None:
        self.run, self._hubs = run, hubs
        self.acknowledged: list[int] = []
        self.offered = self.refused = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop.wait(0.2):
            step = self.offered
            self.offered += POINTS
            try:
                sent = random.choice(self._hubs).post("/v1/metrics", bodies.points(POINTS, run=self.run, first=step))
                taken = sent.status == 200
            except _FAILED:
                taken = False
            if taken:
                self.acknowledged += range(step, step + POINTS)
            else:
                self.refused += 1

    def stop(self) -> None:
        """Send nothing more."""
        self._stop.set()
        self._thread.join()


class Reader:
    """Asks the hubs for the points of each run and counts the kinds of answers.

    A complete answer is wrong if it has more points of a run than were offered, or lacks a run that a complete answer
    of the same hub had. `older` answers have fewer points of a run than such an answer had.
    """

    def __init__(self, hubs: Sequence[RunningHub], writers: Sequence[Writer]) -> None:
        self._hubs, self._writers = hubs, {each.run: each for each in writers}
        self._seen: list[Counter[str]] = [Counter() for _ in hubs]
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop.wait(0.5):
            for hub, seen in zip(self._hubs, self._seen, strict=True):
                with contextlib.suppress(*_FAILED):
                    self._look(hub, seen)

    def _look(self, hub: RunningHub, seen: Counter[str]) -> None:
        answer = hub.request("GET", "/api/runs?limit=1000")
        if answer.status != 200:
            self.counts["refused"] += 1
            return
        found = answer.json()
        if "partial" in found:
            self.counts["partial"] += 1
            return
        self.counts["complete"] += 1
        points = {row["id"]: int(row["counts"]["points"]) for row in found["runs"]}
        for run, writer in self._writers.items():
            if run in seen and run not in points:
                self.wrong.append(f"{run} is missing from a complete answer")
            elif points.get(run, 0) > writer.offered:
                self.wrong.append(f"{run} has {points[run]} points of {writer.offered}")
            elif points.get(run, 0) < seen[run]:
                self.counts["older"] += 1
            else:
                seen[run] = points.get(run, 0) or seen[run]
        for run in [run for run, count in seen.items() if not count]:
            del seen[run]

    def stop(self) -> None:
        """Ask nothing more."""
        self._stop.set()
        self._thread.join()


def stored_steps(server: ServerProcess, runs: Sequence[str]) -> dict[str, list[int]]:
    """The steps of some runs that one replica holds; empty for runs of another shard."""
    engine = Server(parse(f"{server.url('stepscope_shard')}?connect_timeout=1"))
    try:
        found = engine.query("SELECT id, min(run) AS number FROM runs GROUP BY id")
        numbers = {id: number for id, number in found.rows("id", "number") if id in runs}
        return {
            run: sorted(
                engine.query(
                    f"SELECT step FROM metrics WHERE series BETWEEN {number << 32} AND {(number << 32) + 0xFFFFFFFF}"
                )["step"]
            )
            for run, number in numbers.items()
        }
    finally:
        engine.close()


def compare(cluster: ClusterProcesses, writers: Sequence[Writer]) -> dict[str, int]:
    """Count what is missing and what is there twice, on every replica; what was refused may be there or not."""
    runs = [each.run for each in writers]
    lost = doubled = placed = 0
    for server in (server for shard in cluster.servers for server in shard):
        found = stored_steps(server, runs)
        for each in writers:
            if each.run in found:
                steps = found[each.run]
                placed += 1
                lost += len(set(each.acknowledged) - set(steps))
                doubled += len(steps) - len(set(steps))
    return {"lost": lost, "doubled": doubled, "copies": placed}


def wait_until_complete(
    cluster: ClusterProcesses, writers: Sequence[Writer], seconds: float, look_after: Callable[[], object]
) -> dict[str, int]:
    """Wait until every acknowledged point is on every replica of its shard; the last counts."""
    complete = {"lost": 0, "doubled": 0, "copies": len(writers) * len(cluster.servers[0])}
    deadline = time.monotonic() + seconds
    counts: dict[str, int] = {}
    while counts != complete and time.monotonic() < deadline:
        time.sleep(0.3)
        with contextlib.suppress(Exception):
            look_after()
            counts = compare(cluster, writers)
    return {**counts, "complete": counts == complete}
