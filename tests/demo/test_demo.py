"""`stepscope demo` as a user runs it: a hub, four ranks, a game, and a summary that names what went wrong."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="the demo needs numpy")
pytest.importorskip("tests.chdb", reason="the demo's hub needs chDB")

import stepscope
from stepscope.cli import demo
from stepscope.cli.main import main
from stepscope.demo import demo_plan
from tests.forked import NORMAL

STEPS = 160
Process = "subprocess.Popen[str]"
Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the demo in a session of its own; it and its children die with the test."""
    begun = []

    def begin(*arguments: str, home: Path = tmp_path / "home") -> Any:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "stepscope", "demo", "--home", str(home), *arguments],
            env={**kept, **NORMAL, "PYTHONPATH": str(Path(stepscope.__file__).parents[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)


def test_what_was_planted_is_named_and_served_until_ctrl_c(start: Start) -> None:
    """Every fault is in the summary, the page's address answers after it, and SIGINT ends the command and its hub."""
    process = start("--json", "--steps", str(STEPS))
    address = None
    with ThreadPoolExecutor(1) as pool:
        out = pool.submit(process.stdout.read)
        for line in process.stderr:
            if line.startswith("open "):
                address = line.split()[1]
            if line.startswith("serving "):
                break
        with urllib.request.urlopen(f"{address}api/runs", timeout=300) as answer:
            assert len(json.load(answer)["runs"]) == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0
    assert address is not None
    assert_nobody_listens(address)
    check_findings(*json.loads(out.result()))


def check_findings(spirals: dict[str, Any], cart: dict[str, Any]) -> None:
    """Every fault is found in the records, with its step, its rank and its span or metric."""
    faults = demo_plan.Plan(STEPS)
    found = {each["kind"]: each for each in reversed(spirals["findings"])}
    places = {kind: (each["step"], each["rank"]) for kind, each in found.items()}
    assert places["dead_rank"] == faults.crash
    assert places["not_finite"] == faults.dropout
    assert places["spike"] == faults.spike
    assert places["data_stall"] == faults.slow_batch
    assert found["data_stall"]["span"] == "train.data_load"
    slow, rank = faults.straggler
    assert (found["straggler"]["rank"], found["straggler"]["span"]) == (rank, "train.backward")
    assert found["straggler"]["first_step"] <= slow.stop
    assert found["straggler"]["last_step"] >= slow.start
    resumed = faults.crash[0] // faults.checkpoint_every * faults.checkpoint_every
    assert f"attempt 2 resumed at step {resumed}" in found["dead_rank"]["text"]
    (blown,) = [each for each in cart["findings"] if each["kind"] == "lr_schedule"]
    assert blown["step"] == demo_plan.game_plan(STEPS).blow_up
    assert (spirals["status"], spirals["ranks"], spirals["attempts"], spirals["step"]) == ("finished", 4, 2, STEPS - 1)
    assert cart["status"] == "finished"


def assert_nobody_listens(address: str) -> None:
    """The hub has ended."""
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))) != 0


def test_exit_ends_it_after_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a shorter training than the demo's own, whose summary is tested above."""

    def train(home: Path, steps: int) -> list[str]:
        with stepscope.init(project="p", run_id="short", home=home, probes=False, shipper="none") as run:
            run.log({"loss": 1.0}, step=steps)
        return [run.id]

    monkeypatch.setattr(demo, "train", train)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["demo", "--exit", "--json", "--home", str(tmp_path / "home")]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr()
    (found,) = json.loads(said.out)
    assert (found["id"], found["status"]) == ("short", "finished")
    assert_nobody_listens(said.err.partition("open ")[2].split()[0])


class SlowHub:
    """Answers as a hub does that stores ten points in each of so many reads, and then nothing more."""

    def __init__(self, reads: int, ends: bool) -> None:
        self.left, self.points, self.ends = reads, 0, ends

    def get(self, path: str, **_: str) -> dict[str, Any]:
        """The run as far as it is stored, or its findings."""
        if path.endswith("findings"):
            return {"complete": True, "findings": []}
        self.left -= 1
        self.points += 10 if self.left >= 0 else 0
        status = "finished" if self.ends and self.left < 0 else "running"
        return {"runs": [{"status": status, "counts": {"points": self.points}}]}


def test_a_slow_hub_is_waited_for_as_long_as_it_stores(capsys: pytest.CaptureFixture[str]) -> None:
    """A hub that needs an hour is waited for, and says how far it is; one that stopped is an error."""
    clock = iter(range(0, 10**6, 60))
    found = demo.findings(SlowHub(60, ends=True), "r", lambda: next(clock), lambda _: None)
    assert found["status"] == "finished"
    assert "waiting for the hub: 600 points stored after" in capsys.readouterr().err
    with pytest.raises(demo.NotStored, match="nothing more of run r for 300 s"):
        demo.findings(SlowHub(3, ends=False), "r", lambda: next(clock), lambda _: None)


def test_too_few_steps_are_refused(start: Start) -> None:
    """The error has the minimum number of steps."""
    process = start("--steps", "10")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "at least 120" in err
