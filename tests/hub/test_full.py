"""When there is no room: clients get Retry-After, and nothing acknowledged is lost."""

import contextlib
import json
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

import stepscope
from stepscope.wire.otlp.replies import read_status
from tests.forked import stepscope as command
from tests.hub import otlp_bodies as bodies
from tests.hub.conftest import JSON, RunningHub, StartHub, stored_columns
from tests.hub.test_start import refused


def _grpc_refusal(hub: RunningHub, body: bytes) -> grpc.RpcError:
    with grpc.insecure_channel(f"127.0.0.1:{hub.grpc_port}") as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.RpcError) as refused:
            call(body, timeout=300)
    return refused.value


_ANY_SIZE = """
import sys
from stepscope.cli import hub, main
size = hub.size
hub.size = lambda least: size(0)
sys.exit(main.main(sys.argv[1:]))
"""
"""The command, without its bound on how small a journal may be."""


@pytest.fixture
def narrow_hub(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub whose journal has room for a few records."""
    pytest.importorskip("tests.chdb")
    hub = RunningHub(tmp_path / "home", ("--journal-bytes", "20kB"), program=("-c", _ANY_SIZE)).start()
    yield hub
    hub.kill()


def test_full_journal(narrow_hub: RunningHub) -> None:
    """Beyond the journal's bound every receiver says when to come again, in its client's language."""
    hub = narrow_hub
    assert hub.post("/v1/traces", bodies.spans(5)).status == 200
    large = bodies.spans(200, note="x" * 500)
    answer = hub.post("/v1/traces", large)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    status = read_status("protobuf", answer.body)
    assert (status.code, (status.retry_after or 0) > 0) == (14, True)
    record = {"body": {"stringValue": "x" * 30_000}}
    text = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
    answer = hub.post("/v1/logs", text.encode(), JSON)
    assert (answer.status, read_status("json", answer.body).retry_after) == (503, 5.0)
    refusal = _grpc_refusal(hub, large)
    assert refusal.code() is grpc.StatusCode.UNAVAILABLE
    details = dict(refusal.trailing_metadata())["grpc-status-details-bin"]
    assert (read_status("protobuf", details).retry_after or 0) > 0
    assert hub.health()["receivers"]["otlp_http"]["retried"] == {"full": 2}


def test_full_disk(start_hub: StartHub) -> None:
    """While the disk takes nothing the answer is 503; afterwards what was acknowledged is stored, once."""
    hub = start_hub()
    assert hub.process is not None
    _, hard = resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE)
    acknowledged = 0
    for _ in range(3):
        assert hub.post("/v1/metrics", bodies.points(10, run="disk", first=acknowledged)).status == 200
        acknowledged += 10
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (0, hard))
        answer = hub.post("/v1/metrics", bodies.points(10, run="disk", first=acknowledged))
        assert (answer.status, int(answer.headers["retry-after"]) >= 1) == (503, True)
        resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    hub.wait_stored("otlp_http", acknowledged, seconds=60)
    assert hub.stop() == 0
    found = stored_columns(hub.home, "SELECT step FROM metrics ORDER BY step")
    assert [int(step) for step in found["step"]] == list(range(acknowledged))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount file systems of so many MiB."""
    places: list[Path] = []

    def mount(size: int) -> Path:
        place = tmp_path / f"disk{len(places)}"
        place.mkdir()
        made = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(place)]
        if subprocess.run(made, capture_output=True, check=False).returncode:
            pytest.skip("a small disk needs the right to mount a tmpfs")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path) -> None:
    """Leave no room on a disk."""
    with contextlib.suppress(OSError), open(place / "ballast", "wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


def test_a_hub_does_not_start_on_a_full_disk(start_hub: StartHub, disk: Callable[[int], Path]) -> None:
    """One sentence and the exit code 2, and the store is whole: with room it starts."""
    place = disk(6)
    hub = start_hub()
    assert hub.stop() == 0
    shutil.copytree(hub.home, place / "home", symlinks=True)
    fill(place)
    assert refused(place / "home", "--port", "0", "--grpc-port", "0") == (
        f"stepscope: the disk of {place / 'home'} is full: free some of it"
    )
    (place / "ballast").unlink()
    assert start_hub(home=place / "home").stop() == 0


def test_a_store_is_not_called_damaged_on_a_full_disk(disk: Callable[[int], Path]) -> None:
    """A full disk is reported as such, whether the store or its folder cannot be created."""
    place = disk(1)
    run = stepscope.init(run_id="x", home=str(place), probes=False, capture_logs=False, otel=False)
    run.log({"loss": 1.0}, step=1)
    run.finish()
    for _ in range(2):
        ended = command("step", "latest", "1", "--home", place)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"stepscope: the disk of {place}")
        assert ended.stderr.strip().endswith("is full: free some of it")
        fill(place)
