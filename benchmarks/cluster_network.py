"""A network for the servers of a cluster: each in a namespace of its own, with links that can be cut without a word."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from stepscope.testing.clickhouse import ServerProcess
from stepscope.testing.clickhouse_cluster import Place

INSIDE = "STEPSCOPE_BENCHMARK_NETWORK"


def enter(module: str) -> None:
    """Run a module again in a new network namespace and mount namespace, unless it is there already; needs root."""
    if INSIDE not in os.environ:
        again = ["unshare", "--net", "--mount", sys.executable, "-m", module, *sys.argv[1:]]
        os.execvpe("unshare", again, {**os.environ, INSIDE: "1"})
    for command in ("ip link set lo up", "sysctl -q -w net.ipv4.ip_forward=1"):
        _run(command)


@dataclass
class Network:
    """Namespaces with one server each, which reach each other and ZooKeeper through this one."""

    names: list[str] = field(default_factory=list)

    def place(self, shard: int, replica: int) -> Place:
        """Make the namespace of a server."""
        number = len(self.names)
        name, net = f"stepscope-{os.getpid()}-{number}", f"10.77.{number}"
        self.names.append(name)
        for command in (
            f"ip netns add {name}",
            f"ip link add sst{number} type veth peer name uplink netns {name}",
            f"ip addr add {net}.1/30 dev sst{number}",
            f"ip link set sst{number} up",
            f"ip -n {name} addr add {net}.2/30 dev uplink",
            f"ip -n {name} link set lo up",
            f"ip -n {name} link set uplink up",
            f"ip -n {name} route add default via {net}.1",
        ):
            _run(command)
        return Place(f"{net}.2", ("ip", "netns", "exec", name), f"{net}.1")

    @contextlib.contextmanager
    def cut(self, some: list[ServerProcess], others: list[ServerProcess]) -> Iterator[None]:
        """Drop every packet between two groups of servers."""
        pairs = [*product(some, others), *product(others, some)]
        rules = [f"from {one.host} to {other.host} blackhole" for one, other in pairs]
        with self._rules(rules):
            yield

    @contextlib.contextmanager
    def cut_from_hubs(self, servers: list[ServerProcess]) -> Iterator[None]:
        """Drop every packet from servers to the hubs, but not to ZooKeeper and to each other."""
        with contextlib.ExitStack() as undo:
            for server in servers:
                number = int(server.host.split(".")[2])
                name = self.names[number]
                # What a server sends from its own port is an answer to a hub, or to another server.
                mark = f"from {server.host} to 10.77.{number}.1 sport {server.port} blackhole"
                _run(f"ip -n {name} rule add {mark}")
                undo.callback(_run, f"ip -n {name} rule del {mark}")
            yield

    @contextlib.contextmanager
    def _rules(self, rules: list[str]) -> Iterator[None]:
        for rule in rules:
            _run(f"ip rule add {rule}")
        try:
            yield
        finally:
            for rule in rules:
                _run(f"ip rule del {rule}")

    def close(self) -> None:
        """Remove the namespaces."""
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)
