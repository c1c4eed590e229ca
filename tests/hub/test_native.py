"""The native protocol and the folder receiver: journals of trainers, from afar and from next door."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import stepscope
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Record
from stepscope.wire import frames
from tests.hub.conftest import RunningHub, StartHub, stored_columns
from tests.waiting import wait_until

OCTETS = "application/octet-stream"


def head(writer: str = "r0-a1-far-1-abc", run: str = "far", project: str = "p") -> bytes:
    """The head of a remote writer."""
    return frames.pack_head(Writer(id=writer, run=run, project=project))


def batch(seq: int, *records: Record) -> bytes:
    """A batch of it."""
    return frames.pack_batch(seq, [msgspec.msgpack.encode(record) for record in records])


def metric(step: int, value: float = 1.0, **attrs: str) -> Metric:
    """A metric of it."""
    return Metric(time.time_ns(), step, None, "trainer", {"loss": value}, attrs)


def values(hub: RunningHub, run: str) -> list[tuple[int, float]]:
    """What is stored of `trainer/loss`."""
    sql = (
        "SELECT step, value FROM metrics WHERE series IN "
        "(SELECT series FROM series WHERE key = 'trainer/loss' "
        f"AND run IN (SELECT run FROM runs WHERE id = '{run}')) ORDER BY step, value"
    )
    found = stored_columns(hub.home, sql)
    return [(int(step), float(value)) for step, value in zip(found["step"], found["value"], strict=True)]


def test_native(start_hub: StartHub) -> None:
    """Frames are stored once however often they come; the answer says how far they are safe."""
    hub = start_hub()
    first = head() + batch(0, metric(0)) + batch(1, metric(1), metric(2, float("nan")))
    for _ in range(3):
        answer = hub.post("/v1/stepscope", first, OCTETS)
        assert answer.status == 200, answer
        assert answer.json()["safe"] == [{"run": "far", "writer": "r0-a1-far-1-abc", "seq": 1}]
    more = head() + batch(2, metric(3))
    assert hub.post("/v1/stepscope", more, OCTETS, content_encoding="identity").status == 200
    hub.wait_stored("native", 4)
    assert hub.stop() == 0
    found = values(hub, "far")
    assert [step for step, _ in found] == [0, 1, 2, 3]
    assert str(found[2][1]) == "nan"


def test_any_number_of_keys(start_hub: StartHub) -> None:
    """Our own SDK is not bound in its metric keys: all are taken, and all are stored."""
    hub = start_hub()
    made = [Metric(1, seq, None, None, {f"k{seq}/{key}": 1.0 for key in range(1000)}) for seq in range(21)]
    body = head() + b"".join(batch(seq, record) for seq, record in enumerate(made))
    answer = hub.post("/v1/stepscope", body, OCTETS).json()
    assert (answer["written"], answer["rejected"]) == (21, {})
    hub.wait_stored("native", 21)
    assert hub.stop() == 0
    assert list(stored_columns(hub.home, "SELECT count() AS n FROM series")["n"]) == [21_000]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 200, id="nothing"),
        pytest.param(head(), 200, id="head"),
        pytest.param(batch(0, metric(0)), 400, id="no-head"),
        pytest.param(head()[:-1], 400, id="cut-head"),
        pytest.param(head() + batch(0, metric(0))[:-1], 400, id="cut-batch"),
        pytest.param(head() + b"\0" * 50 + batch(0, metric(0)), 400, id="zeros-between"),
        pytest.param(head(run=""), 400, id="no-run"),
        pytest.param(frames.frame(msgspec.msgpack.encode((0, {"id": 1}))), 400, id="wrong-type"),
        pytest.param(b"x" * 100, 400, id="no-frame"),
    ],
)
def test_bad_frames(hub: RunningHub, body: bytes, status: int) -> None:
    """Frames that cannot be read are refused whole, and nothing of them is taken."""
    written = hub.health()["receivers"].get("native", {}).get("written", 0)
    answer = hub.post("/v1/stepscope", body, OCTETS)
    assert answer.status == status, answer
    assert status == 200 or answer.json()["error"]["code"] == "bad_request"
    assert hub.health()["receivers"].get("native", {}).get("written", 0) == written


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "a/b", "\0", "x" * 5000, "..", "."])
def test_names_reach_no_file(hub: RunningHub, name: str) -> None:
    """Whatever a client calls its run or writer, no file of that name is made or read."""
    body = head(writer=name, run=name) + batch(0, metric(0))
    assert hub.post("/v1/stepscope", body, OCTETS).status == 200
    hub.wait_stored("native", 1)
    names = {path.name for path in hub.home.rglob("*")}
    assert not any(name in found for found in names if name.strip("./\0"))
    assert {path.name for path in hub.home.iterdir()} <= {"hub", "runs"}


def test_folder(start_hub: StartHub, tmp_path: Path) -> None:
    """What a trainer records is stored while it runs, also what it wrote while no hub was there."""
    home = tmp_path / "home"
    quiet: dict[str, Any] = {"probes": False, "capture_logs": False, "otel": False}
    run = stepscope.init(project="near", run_id="near", home=str(home), **quiet)
    for step in range(10):
        run.log({"loss": float(step)}, step=step, category="trainer")
    run.flush()
    hub = start_hub(home=home)
    hub.wait_stored("folder", 10)
    for step in range(10, 20):
        run.log({"loss": float(step)}, step=step, category="trainer")
    run.flush()
    hub.wait_stored("folder", 20)
    assert hub.health()["runs"] == {"running": 1}
    wait_until(lambda: hub.health()["folder"] == {"writers": 1, "reading": False, "unread_bytes": 0})
    assert hub.stop() == 0
    for step in range(20, 30):
        run.log({"loss": float(step)}, step=step, category="trainer")
    run.finish()
    hub.start()
    hub.wait_stored("folder", 10)
    hub.kill()
    hub.start()
    wait_until(lambda: not (health := hub.health())["lag"]["seconds"] and health["uptime_seconds"] >= 2)
    assert hub.stop() == 0
    assert values(hub, "near") == [(step, float(step)) for step in range(30)]
