"""Faults of a real cluster while writers ingest: is every acknowledged record there once, on all replicas?"""

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stepscope.hub.store.address import parse
from stepscope.hub.store.engine import EngineError
from stepscope.hub.store.server import Server
from stepscope.testing.clickhouse import ServerProcess
from stepscope.testing.clickhouse_cluster import ClusterProcesses, running_cluster
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import RunningHub

WRITERS = 3
POINTS = 20
FAULT_SECONDS = 15.0
SETTLED_SECONDS = 420.0


class Ingest:
    """Sends points of one run until it is stopped; what was not acknowledged is sent again under the next steps."""

    def __init__(self, hubs: Sequence[RunningHub], run: str) -> None:
        self.run, self._hubs = run, hubs
        self.acknowledged: list[int] = []
        self.refused = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        step = 0
        while not self._stop.wait(0.2):
            hub = random.choice(self._hubs)
            try:
                sent = hub.post("/v1/metrics", bodies.points(POINTS, run=self.run, first=step)).status
            except (OSError, http.client.HTTPException):
                sent = 0
            if sent == 200:
                self.acknowledged += range(step, step + POINTS)
            else:
                self.refused += 1
            step += POINTS

    def stop(self) -> None:
        """Send nothing more."""
        self._stop.set()
        self._thread.join()


def kill_hub(cluster: ClusterProcesses, hubs: Sequence[RunningHub]) -> None:
    """SIGKILL of a hub, which is started again."""
    hub = random.choice(hubs)
    hub.kill()
    time.sleep(FAULT_SECONDS / 3)
    hub.start()


def kill_server(cluster: ClusterProcesses, hubs: Sequence[RunningHub]) -> None:
    """SIGKILL of a server, which is started again."""
    server = random.choice([each for shard in cluster.servers for each in shard])
    server.kill()
    time.sleep(FAULT_SECONDS)
    server.start()


def kill_shard(cluster: ClusterProcesses, hubs: Sequence[RunningHub]) -> None:
    """SIGKILL of both replicas of a shard."""
    shard = random.choice(cluster.servers)
    for server in shard:
        server.kill()
    time.sleep(FAULT_SECONDS)
    for server in shard:
        server.start()


def kill_zookeeper(cluster: ClusterProcesses, hubs: Sequence[RunningHub]) -> None:
    """SIGKILL of ZooKeeper."""
    cluster.zookeeper.kill()
    time.sleep(FAULT_SECONDS)
    cluster.zookeeper.start()


def stop_server(cluster: ClusterProcesses, hubs: Sequence[RunningHub]) -> None:
    """A server that takes connections and says nothing (SIGSTOP), as behind a partition."""
    server = random.choice([each for shard in cluster.servers for each in shard])
    with _stopped(server):
        time.sleep(FAULT_SECONDS)


def slow_server(cluster: ClusterProcesses, hubs: Sequence[RunningHub]) -> None:
    """A server that runs a tenth of the time."""
    server = random.choice([each for shard in cluster.servers for each in shard])
    until = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < until:
        with _stopped(server):
            time.sleep(0.9)
        time.sleep(0.1)


def restart_everything(cluster: ClusterProcesses, hubs: Sequence[RunningHub]) -> None:
    """SIGKILL of everything, and a start in random order; servers only find ZooKeeper once it is there."""
    hub, *_ = hubs
    parts: list[Any] = [*(each for shard in cluster.servers for each in shard), cluster.zookeeper]
    hub.kill()
    for part in random.sample(parts, len(parts)):
        part.kill()
    cluster.zookeeper.start()
    servers = [part for part in parts if part is not cluster.zookeeper]
    for server in random.sample(servers, len(servers)):
        server.start()
    hub.start()


@contextlib.contextmanager
def _stopped(server: ServerProcess) -> Iterator[None]:
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


FAULTS: dict[str, Callable[[ClusterProcesses, Sequence[RunningHub]], None]] = {
    "hub": kill_hub,
    "server": kill_server,
    "shard": kill_shard,
    "zookeeper": kill_zookeeper,
    "stopped": stop_server,
    "slow": slow_server,
    "everything": restart_everything,
}


def stored_steps(server: ServerProcess, runs: Sequence[str]) -> dict[str, list[int]]:
    """The steps of some runs that one replica holds; empty for runs of another shard."""
    engine = Server(parse(server.url("stepscope_shard")))
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


def compare(cluster: ClusterProcesses, writers: Sequence[Ingest]) -> dict[str, int]:
    """Count what is missing and what is there twice, on every replica; what was refused may be there or not."""
    runs = [each.run for each in writers]
    lost = doubled = placed = 0
    for shard in cluster.servers:
        for server in shard:
            found = stored_steps(server, runs)
            for each in writers:
                if each.run in found:
                    steps = found[each.run]
                    placed += 1
                    lost += len(set(each.acknowledged) - set(steps))
                    doubled += len(steps) - len(set(steps))
    return {"lost": lost, "doubled": doubled, "copies": placed}


def one(name: str, cluster: ClusterProcesses, hubs: Sequence[RunningHub], number: int) -> dict[str, Any]:
    """Cause one fault and wait until all is stored; the counts."""
    writers = [Ingest(hubs, f"{name}-{number}-{index}") for index in range(WRITERS)]
    time.sleep(5.0)
    began = time.monotonic()
    FAULTS[name](cluster, hubs)
    time.sleep(5.0)
    for each in writers:
        each.stop()
    counts: dict[str, int] = {}
    complete = {"lost": 0, "doubled": 0, "copies": len(writers) * len(cluster.servers[0])}
    while counts != complete and time.monotonic() - began < SETTLED_SECONDS:
        time.sleep(1.0)
        with contextlib.suppress(EngineError):
            counts = compare(cluster, writers)
    return {
        "fault": name,
        "acknowledged": sum(len(each.acknowledged) for each in writers),
        "refused requests": sum(each.refused for each in writers),
        **counts,
        "complete": counts == complete,
        "seconds": round(time.monotonic() - began),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON for each fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"some of {', '.join(FAULTS)}; all by default")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--hubs", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_cluster(folder / "cluster") as cluster:
            env = {"STEPSCOPE_STORE": cluster.url()}
            hubs = [RunningHub(folder / f"hub-{index}", env=env).start() for index in range(given.hubs)]
            try:
                for fault in given.faults or FAULTS:
                    for number in range(given.times):
                        sys.stdout.write(json.dumps(one(fault, cluster, hubs, number)) + "\n")
                        sys.stdout.flush()
            finally:
                for hub in hubs:
                    with contextlib.suppress(Exception, subprocess.SubprocessError):
                        hub.kill()


if __name__ == "__main__":
    main()
