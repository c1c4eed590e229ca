"""Samples keep the promises of all records: they survive SIGKILL, and every row is written, dropped or rejected."""

import os
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.model.names import SCOPE_SAMPLES
from stepscope.model.records import Log
from tests.e2e.test_accounting import last_counters, totals

OLD_NS = 1_000_000_000
PER_STEP = 32
ROW = struct.Struct("<qq")

# Logs 32 samples of 4 kB in each step of 50 ms, and writes down when each step had been taken.
TRAINER = """
    import os, struct, sys, time
    import stepscope

    file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    run = stepscope.init()
    step = 0
    while True:
        with run.step(step):
            for at in range(32):
                run.sample(prompt=f"question {at} of {step}", completion=f"{step}.{at} " * 500, reward=0.5)
        os.write(file, struct.pack("<qq", step, time.monotonic_ns()))
        time.sleep(0.05)
        step += 1
"""

# Offers 3,000 rows and 300 that are none, with memory for a few hundred.
OFFER = """
    import stepscope

    run = stepscope.init(memory_quota="256 KiB", disk_quota="2 MiB")
    for index in range(3000):
        run.sample(prompt=f"question {index}", completion="word " * 200, reward=index)
        if index % 10 == 0:
            run.sample()
    run.finish(timeout=60)
"""


def samples(records: Callable[..., Any], **where: Any) -> list[Log]:
    """The samples in a journal."""
    return [record for record in records(Log, **where) if record.scope == SCOPE_SAMPLES]


def test_samples_survive_sigkill(
    start: Callable[..., Any], until: Callable[..., None], records: Callable[..., Any], tmp_path: Path
) -> None:
    """Every row taken more than a second before is in the journal, whole and once.

    A machine that stands still may break the second once, not three times in a row.
    """

    def lost(place: Path) -> int:
        place.mkdir()
        file, home = place / "accepted", place / "home"
        trainer = start(TRAINER, file, env={"STEPSCOPE_HOME": str(home)})
        until(lambda: file.exists() and file.stat().st_size >= 40 * ROW.size)
        killed = time.monotonic_ns()
        os.kill(trainer.pid, signal.SIGKILL)
        assert trainer.wait().returncode == -signal.SIGKILL
        kept = samples(records, home=home)
        places = [(row.step, at % PER_STEP) for at, row in enumerate(kept)]
        assert places == [(at // PER_STEP, at % PER_STEP) for at in range(len(kept))], "a row is missing or there twice"
        assert all(
            row.attrs["completion"] == f"{row.step}.{at} " * 500 for row, (_, at) in zip(kept, places, strict=True)
        )
        data = file.read_bytes()
        taken = ROW.iter_unpack(data[: len(data) - len(data) % ROW.size])
        old = [step for step, moment in taken if killed - moment > OLD_NS]
        return max((max(old, default=-1) + 1) * PER_STEP - len(kept), 0)

    assert any(lost(tmp_path / str(number)) == 0 for number in range(3))


def test_every_row_is_accounted_for(python: Callable[..., Any], records: Callable[..., Any]) -> None:
    """With too little memory and disk, rows that are read, dropped and rejected are together what was offered."""
    done = python(OFFER)
    assert done.returncode == 0, done.stderr
    counters = last_counters(records())
    dropped = totals(counters, "dropped")["log"]
    assert len(samples(records)) + dropped == 3000
    assert dropped > 0
    assert totals(counters, "rejected") == {"value": 300}
