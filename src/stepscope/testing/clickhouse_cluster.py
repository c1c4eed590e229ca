"""A real cluster on loopback: ZooKeeper and ClickHouse servers in shards and replicas, each a process of its own."""

import contextlib
import importlib.util
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepscope.testing.clickhouse import LOOPBACK, ServerProcess, free_port, program

CLUSTER = "main"
JARS = Path("/usr/share/java")
"""Where Debian's package libzookeeper-java puts ZooKeeper and what it needs."""
_ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"
_CONNECTED = "DDLWorker: Waiting a watch"
"""An old server that is given a statement for the cluster before it has found ZooKeeper crashes."""
_JAVA = (
    *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dzookeeper.forceSync=no"),
    *("-Dzookeeper.nio.numWorkerThreads=0", "-Dzookeeper.nio.numSelectorThreads=1"),
    *("-Dzookeeper.digest.enabled=false", "-Dzookeeper.skipACL=yes"),
)
"""Little compilation, few threads, no checksum of all data and no fsync for each change: processes are killed here, not
machines."""
_LIBRARIES = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "slf4j-nop",
    "netty-*",
    "metrics-core",
    "snappy-java",
    "jline2",
)


DEBIAN = ("clickhouse-server", "default-jre-headless", "libzookeeper-java")
"""The packages that have the programs of a cluster."""
INSTALL = f"apt-get install {' '.join(DEBIAN)} && pip install 'stepscope[cluster]'"
"""The command that installs what a cluster needs."""


def missing() -> str:
    """Name what a cluster needs and is not installed; empty when all is there."""
    wanted = {"clickhouse-server": bool(program()), "java": bool(shutil.which("java"))}
    wanted["libzookeeper-java"] = (JARS / "zookeeper.jar").exists()
    wanted["clickhouse-driver"] = importlib.util.find_spec("clickhouse_driver") is not None
    return ", ".join(name for name, found in wanted.items() if not found)


@dataclass
class ZooKeeperProcess:
    """A ZooKeeper of one node."""

    folder: Path
    port: int
    host: str = LOOPBACK
    process: "subprocess.Popen[bytes] | None" = None

    def start(self, seconds: float = 300.0) -> "ZooKeeperProcess":
        """Start it and wait until it serves: it listens a while before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        jars = [str(jar) for name in _LIBRARIES for jar in sorted(JARS.glob(f"{name}.jar"))]
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"dataDir={self.folder}/data\nclientPort={self.port}\nclientPortAddress={self.host}\n"
            "tickTime=1000\nadmin.enableServer=false\nmaxClientCnxns=100\n4lw.commands.whitelist=srvr\n"
        )
        with open(self.folder / "output", "ab") as output:
            self.process = subprocess.Popen(
                ["java", *_JAVA, "-cp", ":".join(jars), _ZOOKEEPER, str(config)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + seconds
        while not self._serves():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"ZooKeeper does not answer: {(self.folder / 'output').read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def _serves(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=2) as wire:
            wire.sendall(b"srvr")
            return b"Mode: " in b"".join(iter(lambda: wire.recv(4096), b""))
        return False

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class ClusterProcesses:
    """ZooKeeper and the servers, `servers[shard][replica]`."""

    zookeeper: ZooKeeperProcess
    servers: Sequence[Sequence[ServerProcess]]
    password: str = ""

    def start(self) -> "ClusterProcesses":
        """Start everything that does not run, the servers all at once."""
        if self.zookeeper.process is None or self.zookeeper.process.poll() is not None:
            self.zookeeper.start()
        waiting = [server for shard in self.servers for server in shard if not server.runs]
        for server in waiting:
            server.launch()
        for server in waiting:
            server.wait()
        return self

    def kill(self) -> None:
        """End everything with SIGKILL."""
        for shard in self.servers:
            for server in shard:
                server.kill()
        self.zookeeper.kill()

    def url(self, database: str = "stepscope") -> str:
        """Its address as a store."""
        hosts = ",".join(f"{server.host}:{server.port}" for shard in self.servers for server in shard)
        access = f"default:{self.password}@" if self.password else ""
        return f"clickhouse://{access}{hosts}/{database}?cluster={CLUSTER}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server runs: its address, what starts it there, and where it finds ZooKeeper."""

    host: str = LOOPBACK
    prefix: tuple[str, ...] = ()
    zookeeper: str = LOOPBACK


def configured(
    folder: Path,
    *,
    shards: int = 2,
    replicas: int = 2,
    password: str = "",
    place: Callable[[int, int], Place] = lambda shard, replica: Place(),
    dress: Callable[[ServerProcess], ServerProcess] = lambda server: server,
) -> ClusterProcesses:
    """Lay out a cluster in a folder, without starting it; all on loopback unless `place` says otherwise.

    `dress` may change each server, for instance by more configuration.
    """
    places = [[place(shard, replica) for replica in range(replicas)] for shard in range(shards)]
    ports = [[(free_port(), free_port()) for _ in each] for each in places]
    on_loopback = all(each.host == LOOPBACK for shard in places for each in shard)
    zookeeper = ZooKeeperProcess(folder / "zookeeper", free_port(), LOOPBACK if on_loopback else "0.0.0.0")
    remote = "".join(
        "<shard><internal_replication>true</internal_replication>"
        + "".join(
            f"<replica><host>{each.host}</host><port>{port}</port><user>default</user>"
            f"<password>{password}</password></replica>"
            for each, (port, _) in zip(places[shard], ports[shard], strict=True)
        )
        + "</shard>"
        for shard in range(shards)
    )

    def server(shard: int, replica: int) -> ServerProcess:
        there, (port, between) = places[shard][replica], ports[shard][replica]
        more = f"""<remote_servers><{CLUSTER}>{remote}</{CLUSTER}></remote_servers>
            <zookeeper><node><host>{there.zookeeper}</host><port>{zookeeper.port}</port></node></zookeeper>
            <distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>
            <interserver_http_host>{there.host}</interserver_http_host>
            <interserver_http_port>{between}</interserver_http_port>
            <macros><shard>{shard}</shard><replica>{replica}</replica></macros>"""
        folder_of = folder / f"server-{shard}-{replica}"
        return dress(
            ServerProcess(folder_of, port, password, more=more, ready=_CONNECTED, host=there.host, prefix=there.prefix)
        )

    servers = [[server(shard, replica) for replica in range(replicas)] for shard in range(shards)]
    return ClusterProcesses(zookeeper, servers, password)


@contextlib.contextmanager
def running_cluster(
    folder: Path, *, password: str = "", dress: Callable[[ServerProcess], ServerProcess] = lambda server: server
) -> Iterator[ClusterProcesses]:
    """Run two shards of two replicas until the end of the context."""
    made = configured(folder, password=password, dress=dress)
    try:
        yield made.start()
    finally:
        made.kill()


def main(folder: str) -> None:
    """Run a cluster in a folder until SIGINT or SIGTERM."""
    if lacking := missing():
        raise SystemExit(f"not installed: {lacking}; on Debian: {INSTALL}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), running_cluster(Path(folder).absolute()) as cluster:
        sys.stdout.write(f"STEPSCOPE_STORE='{cluster.url()}'\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
