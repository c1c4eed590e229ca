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
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy", reason="the demo needs numpy")
pytest.importorskip("chdb", reason="the demo's hub needs chDB")

import stepscope
from stepscope.demo import demo_plan

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
            env={**kept, "PYTHONPATH": str(Path(stepscope.__file__).parents[1])},
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


def test_the_summary_names_what_was_planted(start: Start) -> None:
    """Every fault is found in the records, with its step, its rank and its span or metric."""
    out, err = start("--exit", "--json", "--steps", str(STEPS)).communicate(timeout=300)
    assert "open http://127.0.0.1:" in err
    spirals, cart = json.loads(out)
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


def test_it_serves_until_ctrl_c_and_leaves_nothing_behind(start: Start) -> None:
    """The page's address answers after the summary; SIGINT ends the command with 0 and the hub with it."""
    process = start("--steps", "120")
    address = None
    for line in process.stderr:
        if line.startswith("open "):
            address = line.split()[1]
        if line.startswith("serving "):
            break
    assert address is not None
    with urllib.request.urlopen(f"{address}api/runs", timeout=30) as answer:
        assert len(json.load(answer)["runs"]) == 2
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))) != 0


def test_too_few_steps_are_refused(start: Start) -> None:
    """With how many there must be."""
    process = start("--steps", "10")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "at least 120" in err
