"""How a hub starts, refuses to start, and stops."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("tests.chdb")

from stepscope import init
from stepscope.hub.home import HubHome, address_of
from stepscope.hub.home_store import open_home_store
from stepscope.hub.serving.addresses import listen
from stepscope.hub.store.read import saved_runs
from stepscope.model.ports import Batch
from tests.forked import stepscope
from tests.hub.conftest import StartHub
from tests.hub.store.contract import losses, writer


def refused(home: Path, *arguments: str) -> str:
    """Start a hub that cannot; what it says, in one line, having exited with 2."""
    ended = stepscope("hub", "--home", home, *arguments)
    assert (ended.returncode, ended.stdout) == (2, ""), ended.stderr
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1, ended.stderr
    return lines[0]


def test_quick_start(start_hub: StartHub) -> None:
    """A hub is ready within 4 s, answers at once, and ends with 0 on SIGTERM."""
    began = time.monotonic()
    hub = start_hub()
    ready = time.monotonic() - began
    assert hub.request("GET", "/healthz").status == 200
    assert hub.stop() == 0
    assert ready < 4 or ready < _busy_machine() * 4, f"ready after {ready:.1f} s"


def _busy_machine() -> float:
    """How many processes want a core; a shared machine is given more time."""
    import os

    return max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)


def test_the_table_of_runs_is_saved_between_two_starts(start_hub: StartHub, tmp_path: Path) -> None:
    """A hub that ends leaves the table of many runs to the next one, whose answers are the same, and one that is
    killed leaves none.
    """
    home = tmp_path / "many"
    place = HubHome(home)
    store = open_home_store(place)
    runs = [writer(f"r{number}") for number in range(saved_runs.MIN_RUNS)]
    for at in range(0, len(runs), 500):
        store.write_many([Batch(each, 0, losses([(1, 2.0)])) for each in runs[at : at + 500]])
    store.close()
    place.close()
    file = home / "hub" / "runs.cache"
    paths = ("/api/runs?limit=1000&metric=loss&sort=-metrics.loss", "/api/fields", "/api/projects")

    hub = start_hub(home=home)
    before = [hub.request("GET", path).json() for path in paths]
    assert before[0]["matched"] == len(runs)
    assert hub.stop() == 0
    assert file.exists()
    hub = start_hub(home=home)
    assert not file.exists()
    assert [hub.request("GET", path).json() for path in paths] == before
    hub.kill()
    assert not file.exists()


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_busy_port(tmp_path: Path, option: str) -> None:
    """A port that is taken is named, with the option that chooses another."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        other = "--grpc-port" if option == "--port" else "--port"
        said = refused(tmp_path / "home", option, port, other, "0")
    assert port in said
    assert option in said


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
@pytest.mark.parametrize("port", ["99999", "-1"])
def test_no_port(tmp_path: Path, option: str, port: str) -> None:
    """A number that is no port is named, with the option and what is one."""
    other = "--grpc-port" if option == "--port" else "--port"
    said = refused(tmp_path / "home", option, port, other, "0")
    assert f"{option} {port} is not a valid port: choose one up to 65535" in said


def test_two_hubs(start_hub: StartHub) -> None:
    """A second hub on the same folder says who has it."""
    hub = start_hub()
    assert hub.process is not None
    said = refused(hub.home, "--port", "0", "--grpc-port", "0")
    assert str(hub.process.pid) in said
    assert hub.url in said


def test_foreign_folder(tmp_path: Path) -> None:
    """A folder with other things in it is left alone."""
    (tmp_path / "thesis.tex").write_text("mine")
    assert "thesis.tex" in refused(tmp_path, "--port", "0", "--grpc-port", "0")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_foreign_hub_folder(tmp_path: Path) -> None:
    """A folder called hub that is not ours is left alone."""
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "data").write_text("mine")
    assert "--home" in refused(tmp_path, "--port", "0", "--grpc-port", "0")


def test_file_as_home(tmp_path: Path) -> None:
    """A home that is a file is refused in one sentence."""
    (tmp_path / "home").write_text("")
    assert "--home" in refused(tmp_path / "home", "--port", "0", "--grpc-port", "0")


def test_damaged_store(start_hub: StartHub) -> None:
    """A damaged store is named, with what to do."""
    hub = start_hub()
    assert hub.stop() == 0
    for path in (hub.home / "hub" / "store" / "data" / "metadata").rglob("*.sql"):
        path.write_text("garbage")
    assert "store" in refused(hub.home, "--port", "0", "--grpc-port", "0")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_open_bind(tmp_path: Path, host: str) -> None:
    """No hub is opened to other machines without a token."""
    assert "token create" in refused(tmp_path / "home", "--host", host, "--port", "0", "--grpc-port", "0")


def test_missing_certificate(tmp_path: Path) -> None:
    """TLS needs both files, and they must be there."""
    missing = str(tmp_path / "no.pem")
    assert "--tls-key" in refused(tmp_path / "home", "--tls-cert", missing)
    assert missing in refused(tmp_path / "home", "--tls-cert", missing, "--tls-key", missing)


def test_files_that_are_no_certificate(tmp_path: Path) -> None:
    """What --tls-cert and --tls-key name is looked at before any port is taken, and blamed by itself."""
    note = tmp_path / "note.txt"
    note.write_text("not a certificate")
    said = refused(tmp_path / "home", "--tls-cert", str(note), "--tls-key", str(note))
    assert f"{note} and {note} are not a certificate and its key" in said
    assert "taken" not in said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_keys_that_do_not_open_the_certificate(tmp_path: Path) -> None:
    """A key of another certificate, or one with a password, is refused."""
    cert, other, locked = tmp_path / "cert.pem", tmp_path / "other.pem", tmp_path / "locked.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=localhost"]
    cipher = ["-passout", "pass:secret", "-keyout", str(locked), "-out", str(cert)]
    subprocess.run([*make, *cipher], check=True, capture_output=True)
    plain = ["-nodes", "-keyout", str(other), "-out", str(tmp_path / "unused.pem")]
    subprocess.run([*make, *plain], check=True, capture_output=True)
    for key in (other, locked):
        said = refused(tmp_path / "home", "--tls-cert", str(cert), "--tls-key", str(key))
        assert f"{cert} and {key} are not a certificate and its key" in said


def test_moved_store(start_hub: StartHub) -> None:
    """Journals are read again into a store that is new."""
    import stepscope

    hub = start_hub()
    run = stepscope.init(run_id="x", home=str(hub.home), probes=False, capture_logs=False, otel=False)
    run.log({"loss": 1.0}, step=1)
    run.finish()
    hub.wait_stored("folder", 1)
    assert hub.stop() == 0
    (hub.home / "hub" / "store").rename(hub.home / "hub" / "store.old")
    hub.start()
    hub.wait_stored("folder", 1)


def test_answers_do_not_wait_for_acks() -> None:
    """The listening socket names its protocol: only then does asyncio switch Nagle's algorithm off for connections."""
    listener = listen("127.0.0.1", 0, "--port")
    with listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert accepted.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("removed", [("lock",), ("lock", "store/lock")], ids=["one", "both"])
def test_a_removed_lock_file_lets_no_second_hub_in(start_hub: StartHub, removed: tuple[str, ...]) -> None:
    """The folder is locked: a second hub names the first, reports no damage, and the first continues."""
    hub = start_hub()
    for name in removed:
        (hub.home / "hub" / name).unlink()
    said = refused(hub.home, "--port", "0", "--grpc-port", "0")
    assert "another hub" in said
    assert "damaged" not in said
    assert hub.health()["status"] == "ok"
    assert address_of(hub.home) == hub.url


def test_a_run_knows_its_address(start_hub: StartHub) -> None:
    """`run.url` is the address of the run on the page of the hub that has its home open; None once there is none."""
    hub = start_hub()
    run = init(project="p", home=hub.home, quiet=True)
    assert run.url == f"{hub.url}/#/run/{run.id}"
    hub.kill()
    assert run.url is None
    run.finish()
