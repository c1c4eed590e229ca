"""SIGKILL at any moment: what `log` took more than 200 ms before is in the journal."""

import os
import random
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.records import Event, Metric

KILLS = 20
OLD_NS = 200_000_000
ROW = struct.Struct("<qq")

# Writes down the index of each record, or of every hundredth, and the moment when `log` had taken it.
TRAINER = """
    import os, struct, sys, time
    import stepscope

    pace, file = float(sys.argv[1]), os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    run = stepscope.init()
    index = 0
    while True:
        run.log({"index": index}, step=index)
        if pace or index % 100 == 0:
            os.write(file, struct.pack("<qq", index, time.monotonic_ns()))
        if pace:
            time.sleep(pace)
        index += 1
"""


def accepted(file: Path) -> list[tuple[int, int]]:
    """What the trainer wrote down: index and moment."""
    data = file.read_bytes()
    return list(ROW.iter_unpack(data[: len(data) - len(data) % ROW.size]))


@pytest.mark.parametrize("pace", [0.0005, 0.0], ids=["paced", "full speed"])
def test_what_was_logged_survives(
    start: Callable[..., Any], until: Callable[..., None], records: Callable[..., Any], tmp_path: Path, pace: float
) -> None:
    """Ten kills at random moments: every record accepted more than 200 ms before can be read, once.

    A disk that others make wait, or a machine that stands still, may break the 200 ms once, not three times in a row;
    that nothing is missing in the middle or there twice holds at every kill.
    """
    chance = random.Random(7)

    def lost(place: Path) -> int:
        """Kill a trainer at some moment and return how many old records are not in its journal."""
        file, home = place / "accepted", place / "home"
        trainer = start(TRAINER, pace, file, env={"STEPSCOPE_HOME": str(home)})
        until(lambda: file.exists() and file.stat().st_size)
        time.sleep(chance.uniform(0.2, 0.6))
        killed = time.monotonic_ns()
        os.kill(trainer.pid, signal.SIGKILL)
        assert trainer.wait().returncode == -signal.SIGKILL
        kept = [record.values["index"] for record in records(Metric, home=home) if record.category is None]
        assert kept == list(range(len(kept))), "a record is missing in the middle, or there twice"
        old = [index for index, moment in accepted(file) if killed - moment > OLD_NS]
        return max(max(old, default=-1) + 1 - len(kept), 0)

    for number in range(KILLS // 2):
        places = [tmp_path / f"{number}-{again}" for again in range(3)]
        for place in places:
            place.mkdir()
        assert any(lost(place) == 0 for place in places), f"kill {number}: old records were lost, three times"


def test_events_spans_and_logs_survive_too(
    start: Callable[..., Any], until: Callable[..., None], records: Callable[..., Any], tmp_path: Path
) -> None:
    """All five kinds that were recorded more than 200 ms before a kill are there, and a hung span shows as open."""
    trainer = start(
        """
    import logging, time
    import stepscope

    run = stepscope.init()
    with run.step(1), run.span("done"):
        run.log({"a": 1.0})
        run.event("milestone")
        run.alert("diverged")
        logging.getLogger("trainer").warning("careful")
    with run.step(2), run.span("hung"):
        time.sleep(600)
    """
    )

    def seen() -> set[str]:
        return {getattr(record, "name", None) or type(record).__name__ for record in records()}

    until(lambda: "hung" in seen())
    trainer.send(signal.SIGKILL)
    assert trainer.wait().returncode == -signal.SIGKILL
    assert {"done", "milestone", "diverged", "Log", "Metric"} <= seen()
    (hung,) = [record for record in records() if getattr(record, "name", "") == "hung"]
    assert (hung.duration, hung.step) == (None, 2)


def test_a_run_is_known_at_once(
    start: Callable[..., Any], until: Callable[..., None], records: Callable[..., Any]
) -> None:
    """The first round waits for no interval, so a run that is killed soon after `init` has begun."""
    program = "import time, stepscope; stepscope.init(); time.sleep(600)"
    trainer = start(program, env={"STEPSCOPE_FLUSH_INTERVAL": "3600"})
    until(lambda: any(event.name == names.EVENT_STARTED for event in records(Event)))
    trainer.send(signal.SIGKILL)
    assert trainer.wait().returncode == -signal.SIGKILL
