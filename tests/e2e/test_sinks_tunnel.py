"""The runbook for MLflow behind an SSH tunnel, through a real reverse tunnel: ssh, sshd and an MLflow server."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stepscope
from tests.dialects.mlflow.server_peer import MlflowPeer, MlflowServer
from tests.dialects.mlflow.sink.test_settings import doctor
from tests.e2e.test_sinks_delivery import shippers
from tests.late import late
from tests.sinks.faults import refused

late("mlflow")

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")
SSH = shutil.which("ssh")
Until = Callable[..., None]
STEPS = 300


class Machine:
    """A training machine that can be reached by SSH alone: an sshd of our own, which lets one key in."""

    def __init__(self, place: Path) -> None:
        self._place = place
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
        with refused() as port:
            self.port = port
        Path("/run/sshd").mkdir(exist_ok=True)  # where Debian's sshd gives up its rights; made by its service only
        settings = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": place / "host",
            "AuthorizedKeysFile": place / "key.pub",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "yes",
        }
        config = place / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        with open(place / "sshd.log", "w") as log:
            self._daemon = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=log)

    @contextmanager
    def tunnel(self, there: int, here: int, until: Until) -> Iterator["subprocess.Popen[bytes]"]:
        """Open `ssh -R`, with the options of the runbook: a port there leads to one here."""
        line = [str(SSH), "-N", "-R", f"127.0.0.1:{there}:127.0.0.1:{here}", "-p", str(self.port)]
        known = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes", "BatchMode=yes")
        for option in ("ExitOnForwardFailure=yes", "ServerAliveInterval=15", "ServerAliveCountMax=3", *known):
            line += ["-o", option]
        line += ["-i", str(self._place / "key"), f"{getpass.getuser()}@127.0.0.1"]
        with open(self._place / "ssh.log", "a") as log:
            ssh = subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=log)
        try:
            until(lambda: ssh.poll() is not None or listens(there))
            assert ssh.poll() is None, (self._place / "ssh.log").read_text() + (self._place / "sshd.log").read_text()
            yield ssh
        finally:
            ssh.kill()
            ssh.wait()
            until(lambda: not listens(there))

    def stop(self) -> None:
        """End it."""
        self._daemon.kill()
        self._daemon.wait()


def listens(port: int) -> bool:
    """Return whether a port has a listener."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """The training machine."""
    if SSH is None or SSHD is None:
        pytest.skip("ssh and sshd are not installed (apt-get install openssh-client openssh-server)")
    if os.geteuid() and not Path("/run/sshd").is_dir():
        pytest.skip("sshd needs /run/sshd, which only root can make")
    place = tmp_path / "ssh"
    place.mkdir()
    made = Machine(place)
    yield made
    made.stop()


def test_runbook(machine: Machine, mlflow_server: MlflowServer, peer: MlflowPeer, tmp_path: Path, until: Until) -> None:
    """The doctor tells closed, open and nothing behind apart; what a cut line held up arrives, each point once."""
    with refused() as there:
        port = there
    uri, home = f"http://127.0.0.1:{port}", tmp_path / "home"
    code, lines = doctor(home, uri, experiment=peer.experiment, timeout=300)
    assert (code, all("tunnel closed" in line for line in lines)) == (1, True), lines
    with machine.tunnel(port, mlflow_server.port, until):
        code, lines = doctor(home, uri, experiment=peer.experiment, timeout=300)
        assert (code, [line[:2] for line in lines]) == (0, ["ok", "ok"]), lines
    with refused() as nobody, machine.tunnel(port, nobody, until):
        code, lines = doctor(home, uri, experiment=peer.experiment, timeout=300)
        assert (code, all("tunnel with nothing behind it" in line for line in lines)) == (1, True), lines

    peer.experiment = "trained"
    mlflow = {"mlflow": {"uri": uri, "experiment": peer.experiment, "timeout": 300}}
    with machine.tunnel(port, mlflow_server.port, until) as ssh:
        run = stepscope.init(project="gpt", home=tmp_path / "trained", sinks=[mlflow], probes=False, shipper="process")
        for step in range(STEPS):
            run.log({"loss": 1 / (step + 1)}, step=step, category="trainer")
            if step == STEPS // 3:
                until(lambda: peer.steps())
                ssh.kill()  # the line is cut while the run goes on
            time.sleep(0.002)
    assert run.flush(timeout=1).undelivered
    assert len(peer.steps()) < STEPS
    with machine.tunnel(port, mlflow_server.port, until):
        run.finish(wait=300)
        until(lambda: len(peer.steps()) >= STEPS)
    assert sorted(peer.steps()) == list(range(STEPS))
    for pid in shippers(tmp_path / "trained"):  # it has more to deliver, of its own, and the tunnel is closed
        os.kill(pid, signal.SIGKILL)
