"""Real ClickHouse servers on loopback, each a process with a folder and ports of its own."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "clickhouse-server"
LOOPBACK = "127.0.0.1"
_MEGA = 1024 * 1024
_MAX_CRASHES = 3
_CONFIG = """<yandex>
    <logger><level>{level}</level><log>{folder}/log</log><errorlog>{folder}/errors</errorlog>
        <size>10M</size><count>1</count></logger>
    <listen_host>{host}</listen_host>
    <tcp_port>{port}</tcp_port>
    <path>{folder}/data/</path><tmp_path>{folder}/tmp/</tmp_path><user_files_path>{folder}/files/</user_files_path>
    <mark_cache_size>{cache}</mark_cache_size><uncompressed_cache_size>0</uncompressed_cache_size>
    <users_config>users.xml</users_config>
    <default_profile>default</default_profile><default_database>default</default_database>
    {more}
</yandex>
"""
_USERS = """<yandex>
    <profiles><default>
        <max_memory_usage>{memory}</max_memory_usage><max_memory_usage_for_all_queries>{memory}</max_memory_usage_for_all_queries>
        <max_threads>2</max_threads>
        <background_pool_size>2</background_pool_size><background_schedule_pool_size>2</background_schedule_pool_size>
    </default></profiles>
    <users><default>
        <password>{password}</password><networks><ip>{clients}</ip></networks>
        <profile>default</profile><quota>default</quota>
    </default></users>
    <quotas><default></default></quotas>
</yandex>
"""


def program() -> str | None:
    """The path of the server's program; None when it is not installed."""
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def listens(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a process listens on a port."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


@dataclass
class ServerProcess:
    """A server that is configured in a folder; `start` may follow `stop` or `kill`, with the same data and ports."""

    folder: Path
    port: int
    password: str = ""
    memory: int = 512 * _MEGA
    more: str = ""
    """Further elements of its configuration."""
    more_ports: tuple[int, ...] = ()
    """Ports that these open."""
    users: str = ""
    """A further file of users."""
    ready: str = ""
    """What its log, then a detailed one, must say before it is ready."""
    host: str = LOOPBACK
    """Its address; not on loopback, it takes connections from anywhere."""
    prefix: tuple[str, ...] = ()
    """What starts it somewhere else, such as in a network namespace."""
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> "ServerProcess":
        """Start it and wait until it answers."""
        self.launch()
        self.wait()
        return self

    def launch(self) -> None:
        """Start it."""
        path = program()
        if path is None:
            raise FileNotFoundError(f"{PROGRAM} is not installed")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log").unlink(missing_ok=True)
        level = "debug" if self.ready else "warning"
        config = _CONFIG.format(
            folder=self.folder, host=self.host, port=self.port, cache=16 * _MEGA, more=self.more, level=level
        )
        clients = LOOPBACK if self.host == LOOPBACK else "::/0"
        (self.folder / "config.xml").write_text(config)
        (self.folder / "users.xml").write_text(
            _USERS.format(memory=self.memory, password=self.password, clients=clients)
        )
        if self.users:
            (self.folder / "users.d").mkdir(exist_ok=True)
            (self.folder / "users.d" / "more.xml").write_text(self.users)
        with open(self.folder / "output", "ab") as output:
            self.process = subprocess.Popen(
                [*self.prefix, path, f"--config-file={self.folder}/config.xml"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    def wait(self, seconds: float = 300.0) -> None:
        """Wait until it answers; one that crashes meanwhile, as old servers do at times, is started again."""
        deadline = time.monotonic() + seconds
        crashes = 0
        while not (all(listens(port, self.host) for port in (self.port, *self.more_ports)) and self._is_ready()):
            assert self.process is not None
            code = self.process.poll()
            if code is not None and code < 0 and crashes < _MAX_CRASHES:
                crashes += 1
                self.launch()
            elif code is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{PROGRAM} does not answer: {(self.folder / 'output').read_text()[-2000:]}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        return not self.ready or self.ready in (self.folder / "log").read_text(errors="replace")

    def stop(self, seconds: float = 30.0) -> None:
        """End it with SIGTERM, or SIGKILL when that takes too long."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def url(self, database: str = "stepscope") -> str:
        """Its address as a store."""
        access = f"default:{self.password}@" if self.password else ""
        return f"clickhouse://{access}{self.host}:{self.port}/{database}"


@contextlib.contextmanager
def running(server: ServerProcess) -> Iterator[ServerProcess]:
    """Run a server until the end of the context."""
    try:
        yield server.start()
    finally:
        server.kill()
