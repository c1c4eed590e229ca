"""CPU seconds of hubs and of a cluster for records that come over HTTP, half of them to the hub that does not write."""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.capacity import KEYS, RANKS, SPANS, cpu_of, pid_of, points_of, spans_of
from stepscope.hub.store import maintenance
from stepscope.hub.store.store import open_server
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Record
from stepscope.sinks.hub import Hub
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing, running_cluster
from tests.hub.conftest import RunningHub

HUBS = 2
RUNS = 8
"""Runs of `RANKS` ranks each; both shards have some."""
PORTION = 50
"""Steps of a batch, as the SDK sends them."""
STORED_SECONDS = 600.0


def send(hubs: Sequence[RunningHub], make: Callable[[int, range], list[Record]], noun: str, steps: int) -> None:
    """Send the batches of every rank to the hubs in turn."""

    def of_run(index: int) -> None:
        sinks = [Hub(url=hub.url, timeout=300.0).open() for hub in hubs]
        for seq in range(steps // PORTION):
            for rank in range(RANKS):
                writer = Writer(id=f"{noun}{rank}", run=f"{noun}-{index}", project="bench", rank=rank)
                records = make(rank, range(seq * PORTION, (seq + 1) * PORTION))
                sinks[(seq + rank) % len(sinks)].write([Batch(writer, seq, records)])

    with ThreadPoolExecutor(RUNS) as threads:
        list(threads.map(of_run, range(RUNS)))


def wait_stored(hub: RunningHub, noun: str, count: int) -> None:
    """Wait until all of it can be read."""
    deadline = time.monotonic() + STORED_SECONDS
    while True:
        rows = hub.request("GET", "/api/runs?limit=1000").json().get("runs", ())
        if sum(row["counts"][f"{noun}s"] for row in rows if row["id"].startswith(noun)) == count:
            return
        assert time.monotonic() < deadline, f"{noun}s are not stored after {STORED_SECONDS:g} s"
        time.sleep(0.5)


def measure(cluster: ClusterProcesses, hubs: Sequence[RunningHub], steps: int) -> None:
    """Print a line for points and one for spans."""
    servers = [*(server for shard in cluster.servers for server in shard), cluster.zookeeper]

    def of_hubs() -> float:
        return sum(cpu_of(hub.process.pid) for hub in hubs if hub.process is not None)

    for noun, make, each in (("point", points_of, KEYS), ("span", spans_of, SPANS)):
        count = steps * RANKS * RUNS * each
        began, before, below = time.monotonic(), of_hubs(), sum(map(cpu_of, map(pid_of, servers)))
        send(hubs, make, noun, steps)
        wait_stored(hubs[0], noun, count)
        took, used, under = time.monotonic() - began, of_hubs() - before, sum(map(cpu_of, map(pid_of, servers))) - below
        print(
            f"{noun}s: {count:,} in {took:.0f} s; CPU s per million: hubs {used / count * 1e6:.2f}, "
            f"servers and ZooKeeper {under / count * 1e6:.2f}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run two hubs on two shards of two replicas."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args(arguments)
    if lacking := missing():
        raise SystemExit(f"not installed: {lacking}")
    with tempfile.TemporaryDirectory() as name, running_cluster(Path(name)) as cluster:
        env = {"STEPSCOPE_STORE": cluster.url()}
        hubs = [RunningHub(Path(name) / f"hub-{index}", env=env).start() for index in range(HUBS)]
        try:
            measure(cluster, hubs, given.steps)
        finally:
            for hub in hubs:
                hub.stop()
        every = [*(server for shard in cluster.servers for server in shard), cluster.zookeeper]
        before = sum(map(cpu_of, map(pid_of, every)))
        store = open_server(cluster.url(), patience=60.0)
        maintenance.compact(store.engine)
        store.close()
        print(f"merging all of it: {sum(map(cpu_of, map(pid_of, every))) - before:.1f} CPU s of the servers")


if __name__ == "__main__":
    main()
