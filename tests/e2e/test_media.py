"""SIGKILL beside media: what was logged a second before is there, and no record names a file that is not."""

import os
import random
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.journal import layout
from stepscope.journal.blobs import blobs_of, find_blob
from stepscope.journal.kept_files import named, sweep
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.records import Event

OLD_NS = 1_000_000_000
KILLS = 6
ROW = struct.Struct("<qq")

TRAINER = """
import os, struct, sys, time
import numpy
import stepscope

file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
run = stepscope.init(otel=False, probes=False)
image = numpy.random.default_rng(0).integers(0, 256, (240, 320, 3), numpy.uint8)
for step in range(10**9):
    image[0, 0, :] = step % 251, step // 251 % 251, step // 63001
    run.log({"image": stepscope.Image(image)}, step=step)
    os.write(file, struct.pack("<qq", step, time.monotonic_ns()))
    time.sleep(0.02)
"""


def test_media_survive(
    start: Callable[..., Any], until: Callable[..., None], records: Callable[..., Any], tmp_path: Path
) -> None:
    """Kills at random moments; after the sweep every blob has a record, and every record had its blob before."""
    chance = random.Random(11)

    def lost(place: Path) -> int:
        file, home = place / "accepted", place / "home"
        trainer = start(TRAINER, file, env={"STEPSCOPE_HOME": str(home)})
        until(lambda: file.exists() and file.stat().st_size)
        time.sleep(chance.uniform(1.1, 1.6))
        killed = time.monotonic_ns()
        os.kill(trainer.pid, signal.SIGKILL)
        assert trainer.wait().returncode == -signal.SIGKILL
        found = [each for each in records(Event, home=home) if each.name == EVENT_MEDIA]
        (run,) = layout.list_runs(home)
        assert all(find_blob(home, run, each.attrs["sha256"]) for each in found), "a record names a missing file"
        assert [each.step for each in found] == list(range(len(found)))
        sweep(home)
        (writer,) = layout.list_writers(home, run)
        folder = layout.writer_folder(home, run, writer)
        assert {each.name for each in blobs_of(folder).all()} == named(folder)
        data = file.read_bytes()
        rows = ROW.iter_unpack(data[: len(data) - len(data) % ROW.size])
        old = [step for step, moment in rows if killed - moment > OLD_NS]
        return max(max(old, default=-1) + 1 - len(found), 0)

    for number in range(KILLS // 2):
        places = [tmp_path / f"{number}-{again}" for again in range(3)]
        for place in places:
            place.mkdir()
        # A machine that stands still may break the second once, not three times in a row.
        assert any(lost(place) == 0 for place in places), f"kill {number}: old media were lost, three times"
