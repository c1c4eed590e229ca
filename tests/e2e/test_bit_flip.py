"""A damaged journal: a flipped bit costs one batch, a torn tail the last one, and every reader gets through."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.journal import layout, segments
from stepscope.model.ports import Batch
from stepscope.wire import frames
from tests.forked import stepscope

RUN = "e2e"
FLIPS = 300

TRAINER = """
    import stepscope

    run = stepscope.init(config={"lr": 0.1})
    for index in range(40):
        with run.step(index), run.span("forward"):
            run.log({"loss": 1 / (index + 1), "accuracy": float("nan")}, category="trainer")
        run.event("milestone", {"index": index})
        assert run.flush()
"""


@pytest.fixture
def segment(python: Callable[..., Any], home: Path) -> Path:
    """The one segment of a real run of some forty batches."""
    done = python(TRAINER)
    assert done.returncode == 0, done.stderr
    (writer,) = layout.list_writers(home, RUN)
    (path,) = layout.list_segments(layout.writer_folder(home, RUN, writer))
    return path


def batches(segment: Path) -> dict[int, Batch]:
    """What a reader gets, by number."""
    return {batch.seq: batch for batch in segments.read_writer(segment.parent)}


def damaged(data: bytes, seed: int) -> Iterator[tuple[int, bytes]]:
    """Copies of the data with one bit flipped, each at another place."""
    chance = random.Random(seed)
    for offset in chance.sample(range(len(data)), FLIPS):
        yield offset, data[:offset] + bytes([data[offset] ^ 1 << chance.randrange(8)]) + data[offset + 1 :]


def test_one_bit_costs_one_batch(segment: Path) -> None:
    """Wherever a bit is flipped, all batches but the one it is in are read, unchanged; and it is counted."""
    data, whole = segment.read_bytes(), batches(segment)
    places = [found for found in frames.scan(data) if isinstance(found, frames.Frame)]
    for offset, copy in damaged(data, seed=1):
        segment.write_bytes(copy)
        tail = segments.Tail(segment.parent)
        found = {batch.seq: batch for batch in tail.read_all()}
        hit = next(number for number, place in enumerate(places) if offset < place.end) - 1
        lost = {hit} - {-1} if hit < len(places) - 2 else {hit}
        assert whole.keys() - found.keys() == lost, f"bit at {offset}"
        assert all(repr(found[seq].records) == repr(whole[seq].records) for seq in found if seq != hit)
        assert tail.damaged == (hit < len(places) - 2)


def test_a_torn_tail_costs_the_last_batch(segment: Path) -> None:
    """A truncated journal is read up to the last complete batch, and continued when more arrives."""
    data, whole = segment.read_bytes(), batches(segment)
    for cut in random.Random(2).sample(range(len(data)), FLIPS):
        segment.write_bytes(data[:cut])
        tail = segments.Tail(segment.parent)
        found = [batch.seq for batch in tail.read_all()]
        assert found == list(range(len(found)))
        assert tail.damaged == 0
        segment.write_bytes(data)
        assert [*found, *(batch.seq for batch in tail.read_all())] == list(whole)


@pytest.mark.parametrize("tail", [bytes(8192), b"\xff" * 100, frames.MARK * 50, b""], ids=["0", "ff", "marks", "none"])
def test_rubbish_at_the_end(segment: Path, tail: bytes) -> None:
    """Zeros after a power failure, or anything else behind the last batch, hides nothing before it."""
    whole = batches(segment)
    with open(segment, "ab") as file:
        file.write(tail)
    assert batches(segment).keys() == whole.keys()


def test_strange_files(segment: Path, home: Path) -> None:
    """Empty segments, other files and folders are skipped."""
    whole = batches(segment)
    (segment.parent / "000001.seg").touch()
    (segment.parent / "000002.seg").mkdir()
    (segment.parent / "notes.txt").write_text("hello")
    (home / "runs" / RUN / "not a writer").mkdir()
    (home / "runs" / "file").write_text("hello")
    (home / "runs" / "empty").mkdir()
    assert batches(segment).keys() == whole.keys()
    for command in (["runs"], ["runs", "--json"], ["show", RUN], ["show", "empty"], ["show", "file"]):
        assert "Traceback" not in stepscope(*command, STEPSCOPE_HOME=str(home)).stderr


def test_commands_get_through(segment: Path, home: Path, tmp_path: Path) -> None:
    """The commands that read journals show what is left of a damaged run, and say that it is damaged."""
    data = segment.read_bytes()
    middle = len(data) // 2
    copies = {
        "flipped": data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :],
        "headless": bytes(64) + data[64:],
        "cut": data[:middle],
        "empty": b"",
    }
    for run, content in copies.items():
        copy = home / "runs" / run / segment.parent.name
        shutil.copytree(segment.parent, copy)
        (copy / segment.name).write_bytes(content)
    listing = stepscope("runs", STEPSCOPE_HOME=str(home))
    assert listing.returncode == 0
    assert listing.stderr == ""
    assert set(copies) <= set(listing.stdout.split())
    for run in copies:
        shown = stepscope("show", run, STEPSCOPE_HOME=str(home))
        assert "Traceback" not in shown.stderr
        assert (shown.returncode, "loss" in shown.stdout) == (0, run != "empty"), shown.stdout + shown.stderr
    told = json.loads(stepscope("show", "flipped", "--json", STEPSCOPE_HOME=str(home)).stdout)
    assert [writer["damaged_frames"] for writer in told["writers"]] == [1]
