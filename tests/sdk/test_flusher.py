"""The flusher when the journal vanishes under it: what was lost is counted, and the rest is recorded."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

import stepscope
from stepscope.journal import layout, quota, segments
from stepscope.model.records import KINDS


def readable(run: stepscope.Run) -> "Counter[str]":
    """Count the records in the journal of a run by kind."""
    folders = [layout.writer_folder(run.home, run.id, name) for name in layout.list_writers(run.home, run.id)]
    return sum((quota.count_kinds(path) for each in folders for path in layout.list_segments(each)), Counter())


def accounted(run: stepscope.Run) -> "Counter[str]":
    """Count the records that are in the journal according to the counters: written, and not removed since."""
    counts = Counter(run.outcomes.snapshot())
    return +Counter({kind: counts[f"written/{kind}"] - counts[f"dropped/{kind}/removed"] for kind in KINDS})


@pytest.mark.parametrize("later", [50, 0], ids=["records follow", "nothing follows"])
def test_what_a_removed_home_held_is_counted_as_dropped(run: stepscope.Run, later: int) -> None:
    """After `rm -r` under a run, `finish` counts what is gone; the counters are those of what can be read."""
    for step in range(100):
        run.log({"loss": 0.5}, step=step)
    assert run.flush(300)
    shutil.rmtree(run.home / "runs")
    for step in range(later):
        run.log({"loss": 0.5}, step=step)
    status = run.finish(timeout=300)
    assert status.dropped >= 100
    assert readable(run) == accounted(run)
    assert readable(run)["metric"] > later


def test_a_truncated_segment_costs_what_cannot_be_read(run: stepscope.Run) -> None:
    """Records that are still readable in a changed segment are not counted as dropped."""
    run.log({"loss": 0.5}, step=0)
    assert run.flush(300)
    (writer,) = layout.list_writers(run.home, run.id)
    (path,) = layout.list_segments(layout.writer_folder(run.home, run.id, writer))
    kept = path.stat().st_size
    before = readable(run)
    for step in range(100):
        run.log({"loss": 0.5}, step=step)
    assert run.flush(300)
    with open(path, "r+b") as file:
        file.truncate(kept)
    assert run.flush(300).dropped >= 100
    assert readable(run) >= before
    run.finish(timeout=300)
    assert readable(run) == accounted(run)


def test_thinned_records_are_not_counted_twice(tmp_path: Path) -> None:
    """What the disk quota dropped before the home was removed is counted for that reason alone."""
    run = stepscope.init(home=tmp_path, probes=False, otel=False, disk_quota="64KiB")
    for step in range(4_000):
        run.log({"loss": 0.5}, step=step)
        assert step % 200 or run.flush(300)
    assert run.flush(300)
    thinned = Counter(run.outcomes.snapshot())["dropped/metric/disk"]
    assert thinned
    left = readable(run)["metric"]
    shutil.rmtree(run.home / "runs")
    run.finish(timeout=300)
    counts = Counter(run.outcomes.snapshot())
    assert counts["dropped/metric/removed"] == left
    assert list(segments.RunReader(run.home, run.id).read())
