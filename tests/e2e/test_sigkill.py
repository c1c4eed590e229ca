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

from stepscope.model.records import Metric

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
    """Ten kills at random moments: every record accepted more than 200 ms before can be read, once."""
    chance = random.Random(7)
    for number in range(KILLS // 2):
        file, home = tmp_path / f"accepted{number}", tmp_path / f"home{number}"
        trainer = start(TRAINER, pace, file, env={"STEPSCOPE_HOME": str(home)})
        until(lambda file=file: file.exists() and file.stat().st_size)
        moment = time.monotonic() + chance.uniform(0.2, 0.6)
        until(lambda moment=moment: time.monotonic() >= moment)
        killed = time.monotonic_ns()
        os.kill(trainer.pid, signal.SIGKILL)
        assert trainer.wait().returncode == -signal.SIGKILL
        kept = [record.values["index"] for record in records(Metric, home=home) if record.category is None]
        old = [index for index, moment in accepted(file) if killed - moment > OLD_NS]
        assert kept == list(range(len(kept))), "a record is missing in the middle, or there twice"
        assert len(kept) > max(old, default=-1), f"kill {number}: {max(old) - len(kept) + 1} old records were lost"


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
