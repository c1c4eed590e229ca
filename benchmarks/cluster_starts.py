"""Hubs that start, restart and take over shards at once under load: is each acknowledged record there, once?"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.cluster_ingest import Writer, wait_until_complete
from stepscope.hub.store.cluster.address import parse
from stepscope.hub.store.cluster.server import Server
from stepscope.testing.clickhouse_cluster import ClusterProcesses, missing, running_cluster
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until

WRITERS = 2
MIN_HUBS, MAX_HUBS = 2, 4
LEASE_SECONDS = 5
SETTLED_SECONDS = 240.0
CHECK_EVERY = 20
"""Rounds after which everything is counted, that of all rounds before included."""


class Fleet:
    """Hubs on one cluster, some of which run."""

    def __init__(self, folder: Path, cluster: ClusterProcesses, database: str = "stepscope") -> None:
        self.cluster, self.address = cluster, f"{cluster.url(database)}&lease={LEASE_SECONDS}"
        env = {"STEPSCOPE_STORE": self.address}
        self._all = [RunningHub(folder / f"hub-{index}", env=env) for index in range(MAX_HUBS)]
        self.running: list[RunningHub] = []
        """Writers choose among them, also while they are being stopped."""

    def all_at_once(self, hubs: Sequence[RunningHub], act: Callable[[RunningHub], object]) -> None:
        """Do the same with several hubs at the same moment."""
        with ThreadPoolExecutor(MAX_HUBS) as threads:
            list(threads.map(act, hubs))

    def start(self, count: int) -> None:
        """Start so many hubs at once."""
        self.running[:] = self._all[:count]
        self.all_at_once(self.running, _start)

    def start_all(self) -> None:
        """Start the hubs that do not run: what they acknowledged and did not pass on is in their journals."""
        absent = [hub for hub in self._all if hub not in self.running]
        self.all_at_once(absent, _start)
        self.running += absent

    def stop(self) -> None:
        """Stop all hubs at once, cleanly."""
        self.all_at_once(self.running, RunningHub.stop)

    def kill(self, hubs: Sequence[RunningHub] | None = None) -> None:
        """Kill hubs, all by default."""
        self.all_at_once(self.running if hubs is None else hubs, RunningHub.kill)

    def ties(self) -> int:
        """Epochs that several hubs wrote at once."""
        engine = Server(parse(self.address))
        sql = "SELECT count() AS ties FROM (SELECT epoch FROM leases GROUP BY epoch HAVING uniqExact(hub) > 1)"
        try:
            return sum(int(engine.shard(shard).query(sql).one("ties")) for shard in range(engine.shards))
        finally:
            engine.close()


def _start(hub: RunningHub) -> None:
    """Start a hub, again when a server did not answer it in time, as a supervisor does."""
    deadline = time.monotonic() + SETTLED_SECONDS
    while True:
        try:
            hub.start()
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            hub.kill()


def start_at_once(fleet: Fleet) -> None:
    """All are stopped cleanly, and 2 to 4 start at the same moment."""
    fleet.stop()
    fleet.start(random.randint(MIN_HUBS, MAX_HUBS))


def restart_at_once(fleet: Fleet) -> None:
    """All are killed, and 2 to 4 start at the same moment."""
    fleet.kill()
    fleet.start(random.randint(MIN_HUBS, MAX_HUBS))


def take_over(fleet: Fleet) -> None:
    """All but one or two are killed; the others take the shards over while the killed ones start again."""
    killed = random.sample(fleet.running, max(1, len(fleet.running) - random.randint(1, 2)))
    fleet.kill(killed)
    time.sleep(random.uniform(0, 1.5 * LEASE_SECONDS))
    fleet.all_at_once(killed, _start)


KINDS = {"start": start_at_once, "restart": restart_at_once, "takeover": take_over}


def rounds(fleet: Fleet, count: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[dict[str, Any]]:
    """Cause so many starts, in turn, and count now and then; the last counts are those of everything."""
    writers: list[Writer] = []
    done: Counter[str] = Counter()
    fleet.start(MIN_HUBS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        current = [Writer(fleet.running, f"{kind}-{number}-{index}") for index in range(WRITERS)]
        time.sleep(0.5)
        try:
            KINDS[kind](fleet)
            time.sleep(1.0)
        finally:
            for each in current:
                each.stop()
        writers += [each for each in current if each.acknowledged]
        done[kind] += 1
        if (number + 1) % CHECK_EVERY == 0 or number + 1 == count:
            fleet.start_all()
            counts = wait_until_complete(fleet.cluster, writers, SETTLED_SECONDS, lambda: None)
            yield {
                "rounds": dict(done),
                "acknowledged": sum(len(each.acknowledged) for each in writers),
                "refused requests": sum(each.refused for each in writers),
                **counts,
                "ties": fleet.ties(),
                "ignored aborts": sum(_ignored_aborts(hub) for hub in fleet.running),
            }


def _ignored_aborts(hub: RunningHub) -> int:
    """Ask until the hub answers: while it takes shards over it may refuse."""
    wait_until(lambda: "store" in hub.health())
    return int(hub.health()["store"]["ignored_aborts"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON now and then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--kind", action="append", choices=sorted(KINDS), help="all kinds in turn by default")
    parser.add_argument("--folder", default=None, help="where the servers keep their files")
    given = parser.parse_args(arguments)
    if lacking := missing():
        raise SystemExit(f"not installed: {lacking}")
    with tempfile.TemporaryDirectory(dir=given.folder) as name, running_cluster(Path(name)) as cluster:
        fleet = Fleet(Path(name), cluster)
        try:
            for counts in rounds(fleet, given.rounds, given.kind or tuple(KINDS)):
                sys.stdout.write(json.dumps(counts) + "\n")
                sys.stdout.flush()
        finally:
            with contextlib.suppress(Exception):
                fleet.kill()


if __name__ == "__main__":
    main()
