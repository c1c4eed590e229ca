"""Faults of a real cluster while writers ingest through two hubs: is each acknowledged record there, once?"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster_ingest import Reader, Writer, wait_until_complete
from benchmarks.cluster_network import Network, enter
from stepscope.testing.clickhouse import ServerProcess
from stepscope.testing.clickhouse_cluster import ClusterProcesses, configured
from tests.hub.conftest import RunningHub

WRITERS = 3
FAULT_SECONDS = 4.0
SETTLED_SECONDS = 240.0
LATE_SECONDS = 900.0
DISK = "server-0-1"
"""The replica whose disk can be filled: a small file system in memory."""
DISK_BYTES = 256 * 1024 * 1024


@dataclass
class World:
    """What runs: a cluster, hubs on it, and the network between them."""

    cluster: ClusterProcesses
    hubs: list[RunningHub]
    network: Network

    @property
    def servers(self) -> list[ServerProcess]:
        """All servers."""
        return [server for shard in self.cluster.servers for server in shard]


def kill_hub(world: World) -> None:
    """SIGKILL of a hub, which is started again."""
    hub = random.choice(world.hubs)
    hub.kill()
    time.sleep(FAULT_SECONDS)
    hub.start()


def kill_server(world: World) -> None:
    """SIGKILL of a server, which is started again."""
    server = random.choice(world.servers)
    server.kill()
    time.sleep(FAULT_SECONDS)
    server.start()


def kill_shard(world: World) -> None:
    """SIGKILL of both replicas of a shard."""
    shard = random.choice(world.cluster.servers)
    for server in shard:
        server.kill()
    time.sleep(FAULT_SECONDS)
    for server in shard:
        server.launch()
    for server in shard:
        server.wait()


def kill_zookeeper(world: World) -> None:
    """SIGKILL of ZooKeeper."""
    world.cluster.zookeeper.kill()
    time.sleep(FAULT_SECONDS)
    world.cluster.zookeeper.start()


def part_shards(world: World) -> None:
    """No packet passes between the servers of the two shards."""
    first, second = world.cluster.servers
    with world.network.cut(list(first), list(second)):
        time.sleep(FAULT_SECONDS)


def part_hubs(world: World) -> None:
    """No answer of some servers reaches the hubs: of one, of a shard, or of all."""
    shard = random.choice(world.cluster.servers)
    some = random.choice([[random.choice(world.servers)], list(shard), world.servers])
    with world.network.cut_from_hubs(some):
        time.sleep(FAULT_SECONDS)


def fill_disk(world: World) -> None:
    """The disk of one replica is full to the last byte."""
    (server,) = [each for each in world.servers if each.folder.name == DISK]
    filler = server.folder / "data" / "filler"
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(64 * 1024))
    time.sleep(FAULT_SECONDS)
    filler.unlink()


def slow_server(world: World) -> None:
    """A server that runs a tenth of the time."""
    server = random.choice(world.servers)
    until = time.monotonic() + FAULT_SECONDS
    while time.monotonic() < until:
        with _stopped(server):
            time.sleep(0.9)
        time.sleep(0.1)


def stop_server(world: World) -> None:
    """A server that takes connections and says nothing (SIGSTOP)."""
    with _stopped(random.choice(world.servers)):
        time.sleep(FAULT_SECONDS)


def restart_everything(world: World) -> None:
    """SIGKILL of everything, and a start in random order; a hub is started again until a shard answers it."""
    parts: list[Any] = [*world.servers, world.cluster.zookeeper, *world.hubs]
    for part in random.sample(parts, len(parts)):
        part.kill()
    hubs: list[RunningHub] = []
    for part in random.sample(parts, len(parts)):
        if isinstance(part, ServerProcess):
            part.launch()
        elif isinstance(part, RunningHub):
            hubs.append(part)
        else:
            part.start()
    for server in world.servers:
        try:
            server.wait()
        except RuntimeError:  # an old server may crash when it finds no ZooKeeper
            server.start()
    for hub in hubs:
        _start(hub)


def _start(hub: RunningHub) -> None:
    deadline = time.monotonic() + SETTLED_SECONDS
    while True:
        try:
            hub.start()
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            hub.kill()


@contextlib.contextmanager
def _stopped(server: ServerProcess) -> Iterator[None]:
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


FAULTS: dict[str, Callable[[World], None]] = {
    "hub": kill_hub,
    "server": kill_server,
    "shard": kill_shard,
    "zookeeper": kill_zookeeper,
    "shards-parted": part_shards,
    "hubs-parted": part_hubs,
    "full-disk": fill_disk,
    "slow": slow_server,
    "stopped": stop_server,
    "everything": restart_everything,
}


def start_crashed(world: World) -> int:
    """Start the servers again that ended by themselves, as a supervisor does; how many there were."""
    crashed = [each for each in world.servers if each.process is not None and each.process.poll() is not None]
    for server in crashed:
        server.start()
    return len(crashed)


def one(name: str, world: World, number: int) -> dict[str, Any]:
    """Cause one fault and wait until all is stored; the counts."""
    writers = [Writer(world.hubs, f"{name}-{number}-{index}") for index in range(WRITERS)]
    reader = Reader(world.hubs, writers)
    time.sleep(1.0)
    began = time.monotonic()
    FAULTS[name](world)
    crashed = start_crashed(world)
    time.sleep(1.0)
    for each in writers:
        each.stop()
    counts = wait_until_complete(world.cluster, writers, SETTLED_SECONDS, lambda: start_crashed(world))
    late: dict[str, Any] = {}
    if not counts["complete"]:  # what is late is not lost: say why it is late, and wait on
        late = {"not stored in time": counts["lost"], "health": [_health(hub) for hub in world.hubs]}
        counts = wait_until_complete(world.cluster, writers, LATE_SECONDS, lambda: start_crashed(world))
    reader.stop()
    return {
        "fault": name,
        "acknowledged": sum(len(each.acknowledged) for each in writers),
        "refused requests": sum(each.refused for each in writers),
        **counts,
        **late,
        "answers": dict(reader.counts),
        "wrong answers": len(reader.wrong),
        "examples": reader.wrong[:3],
        "servers that crashed": crashed,
        "seconds": round(time.monotonic() - began, 1),
    }


def _health(hub: RunningHub) -> Any:
    try:
        return hub.health()
    except (OSError, ValueError) as error:
        return repr(error)


@contextlib.contextmanager
def running_world(folder: Path, hubs: int) -> Iterator[World]:
    """Run a cluster in namespaces of its own, and hubs."""
    network = Network()
    cluster = configured(folder / "cluster", place=network.place)
    world = World(cluster, [], network)
    data = cluster.servers[0][1].folder / "data"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(data)], check=True)
    try:
        cluster.start()
        env = {"STEPSCOPE_STORE": f"{cluster.url()}&lease=10"}
        for index in range(hubs):
            world.hubs.append(RunningHub(folder / f"hub-{index}", env=env))
            _start(world.hubs[-1])
        yield world
    finally:
        for hub in world.hubs:
            with contextlib.suppress(Exception, subprocess.SubprocessError):
                hub.kill()
        cluster.kill()
        subprocess.run(["umount", "-l", str(data)], check=False)
        network.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line of JSON for each fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"some of {', '.join(FAULTS)}; all by default")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--hubs", type=int, default=2)
    parser.add_argument("--folder", default=None, help="where the servers keep their files")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise SystemExit("network namespaces and full disks need root, and the program ip")
    enter("benchmarks.cluster_faults")
    with tempfile.TemporaryDirectory(dir=given.folder) as name, running_world(Path(name), given.hubs) as world:
        for number in range(given.times):
            for fault in given.faults or FAULTS:
                sys.stdout.write(json.dumps(one(fault, world, number)) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
