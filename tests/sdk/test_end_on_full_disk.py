"""A run that ends on a full disk: how it ended is in its journal all the same."""

from pathlib import Path

import pytest

import stepscope
from stepscope.cli.journal_diagnosis import diagnose
from stepscope.journal import layout, segments
from stepscope.journal.quota import RESERVE_NAME
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.records import Event, Metric
from tests.disks import small_disk

__all__ = ["small_disk"]


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with pytest.raises(OSError, match="No space left"):
        _write_on(disk / "ballast")


def _write_on(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(1000))


def start(disk: Path) -> stepscope.Run:
    """Start a run on the disk, and wait until it is journaled."""
    run = stepscope.init(home=disk, probes=False, otel=False)
    for step in range(10):
        run.log({"loss": 0.5}, step=step)
    assert run.flush(300)
    return run


def folder_of(run: stepscope.Run) -> Path:
    """Return the folder of the only writer."""
    (writer,) = layout.list_writers(run.home, run.id)
    return layout.writer_folder(run.home, run.id, writer)


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_the_end_is_written_on_a_full_disk(small_disk: Path, status: str) -> None:
    """The last batch has the end, the newest values, and how many records are lost; nothing before it is."""
    run = start(small_disk)
    fill(small_disk)
    for step in range(10, 5000):
        run.log({"loss": 0.5}, step=step)
    outcome = run.finish(status, timeout=300)
    assert not outcome
    assert not outcome.recorded
    records = [record for batch in segments.read_writer(folder_of(run)) for record in batch.records]
    (end,) = [each for each in records if isinstance(each, Event) and each.name == EVENT_FINISHED]
    assert end.attrs["status"] == status
    metrics = [each for each in records if isinstance(each, Metric)]
    steps = [each.step for each in metrics if "loss" in each.values]
    assert steps[:10] == list(range(10))
    assert steps[-1] == 4999
    lost = metrics[-1].values["dropped/metric/full"]
    own = [each for each in metrics if each.category == "stepscope"]
    assert len(steps) + lost >= 5000 >= len(steps) + lost - len(own)
    assert outcome.dropped == lost


def test_the_diagnosis_says_that_the_disk_was_full(small_disk: Path) -> None:
    """It is none of a process that was killed: the end is known, and what is lost is counted with the cause."""
    run = start(small_disk)
    fill(small_disk)
    for step in range(10, 5000):
        run.log({"loss": 0.5}, step=step)
    run.finish(timeout=300)
    found = diagnose(run.home, run.id)
    assert [each["kind"] for each in found] == ["lost_records"]
    assert "the disk was full" in found[0]["cause"]


def test_an_end_with_room_on_the_disk_leaves_no_reserve(small_disk: Path) -> None:
    """The space is reserved while the run lasts, and only by the process that writes the end."""
    run = start(small_disk)
    assert (folder_of(run) / RESERVE_NAME).stat().st_size
    run.finish(timeout=300)
    assert not (folder_of(run) / RESERVE_NAME).exists()
    assert layout.list_segments(folder_of(run))
