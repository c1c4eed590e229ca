"""Checkpoints: recorded at once or around a block, measured by another thread, and never in the way."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event, Span
from stepscope.sdk import checkpoints
from stepscope.sdk.checkpoints import measure
from stepscope.sdk.off import OffRun
from stepscope.sdk.run import Run
from tests.sdk.conftest import Records
from tests.waiting import wait_until


def events(records: Records, name: str) -> list[Event]:
    """The events of a name."""
    return [each for each in records(Event) if isinstance(each, Event) and each.name == name]


def measured(records: Records, count: int = 1) -> list[dict[str, Any]]:
    """The measurements, once there are so many."""
    wait_until(lambda: len(events(records, "train.checkpoint.measured")) >= count)
    return [each.attrs for each in events(records, "train.checkpoint.measured")]


def test_a_call_records_a_checkpoint(run: Run, records: Records, tmp_path: Path) -> None:
    """It has the path, the step and the given attributes; its files are added up later."""
    place = tmp_path / "saved"
    (place / "inner").mkdir(parents=True)
    (place / "model.pt").write_bytes(b"x" * 1000)
    (place / "inner" / "state").write_bytes(b"y" * 24)
    with run.step(7):
        run.checkpoint(place, kind="full")
    run.checkpoint(place / "model.pt", step=9)
    first, second = events(records, "train.checkpoint")
    assert (first.step, first.attrs["step"], first.attrs["path"], first.attrs["kind"]) == (7, 7, str(place), "full")
    assert (second.step, "seconds" in second.attrs) == (9, False)
    found = {each["id"]: each for each in measured(records, 2)}
    whole, file = found[first.attrs["id"]], found[second.attrs["id"]]
    assert (whole["bytes"], whole["files"], whole["complete"], file["bytes"]) == (1024, 2, True, 1000)
    assert whole["manifest"] != file["manifest"]


def test_a_block_is_timed(run: Run, records: Records, tmp_path: Path) -> None:
    """The block is a span of overhead; the checkpoint is recorded when it ends, once."""
    path = tmp_path / "a.pt"
    with run.step(3), run.checkpoint(path) as saving:
        run.flush(300)
        assert events(records, "train.checkpoint") == []
        path.write_bytes(b"12345")
    assert saving.path == str(path)
    (event,) = events(records, "train.checkpoint")
    assert event.attrs["seconds"] > 0
    (span,) = [each for each in records(Span) if isinstance(each, Span) and each.name == "train.checkpoint"]
    assert (span.step, span.attrs["train.checkpoint.path"]) == (3, str(path))
    assert measured(records)[0]["bytes"] == 5


def test_a_block_that_raises_saved_nothing(run: Run, records: Records, tmp_path: Path) -> None:
    """The exception passes, the span has it, and no checkpoint is recorded."""
    with pytest.raises(OSError, match="disk full"), run.checkpoint(tmp_path / "a.pt"):
        raise OSError("disk full")
    assert events(records, "train.checkpoint") == []


def test_odd_arguments_are_counted(run: Run, records: Records) -> None:
    """Nothing raises: an address is kept as it is, a wrong step is rejected, an odd path is recorded as text."""
    run.checkpoint("s3://bucket/step-1", step=1)
    run.checkpoint(object(), step="x")  # type: ignore[arg-type]
    run.checkpoint(b"/bytes/path", step=3)
    run.checkpoint("a\0b", step=4)
    found = [each.attrs["path"] for each in events(records, "train.checkpoint")]
    assert (found[0], found[2]) == ("s3://bucket/step-1", "/bytes/path")
    assert found[1].startswith("<object")
    assert "checkpoint" in run.outcomes.rejected_keys()
    assert len(found) == 4


def test_the_call_waits_for_nothing(run: Run, records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs keeps neither the program nor the flusher; the record is in the journal meanwhile."""
    hangs, entered = threading.Event(), threading.Event()

    def hang(path: str, **how: Any) -> Any:
        entered.set()
        hangs.wait(300)
        return measure(path, **how)

    monkeypatch.setattr(checkpoints, "measure", hang)
    run.checkpoint("/some/where", step=1)
    assert len(events(records, "train.checkpoint")) == 1
    assert entered.wait(300)
    run.log({"loss": 1.0}, step=2)
    assert run.flush(300)
    hangs.set()
    (found,) = measured(records)
    assert (found["complete"], found["files"]) == (False, 0)


def test_the_last_checkpoint_is_recorded_when_the_run_ends(run: Run, records: Records, tmp_path: Path) -> None:
    """A call right before `finish` loses nothing."""
    (tmp_path / "a.pt").write_bytes(b"1")
    run.checkpoint(tmp_path / "a.pt", step=1)
    run.finish()
    assert len(events(records, "train.checkpoint")) == 1
    assert len(events(records, "train.checkpoint.measured")) == 1


def test_too_many_are_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded."""
    monkeypatch.setattr(checkpoints, "MAX_WAITING", 3)
    monkeypatch.setattr(run.checkpoints, "_record_plain", lambda: None)
    run.periodic.rounds.clear()
    for step in range(10):
        run.checkpoint("s3://a", step=step)
    assert run.outcomes.snapshot()["dropped/checkpoint/too many"] == 7


def test_what_was_loaded_is_recorded(run: Run, records: Records) -> None:
    """The checkpoint that an attempt continues from, with its step where it is known."""
    run.resumed_from("s3://bucket/step-4", step=4)
    (event,) = events(records, "train.checkpoint.loaded")
    assert event.attrs == {"path": "s3://bucket/step-4", "step": 4}


def test_a_disabled_run_records_nothing(tmp_path: Path) -> None:
    """The same calls do nothing."""
    run = OffRun()
    run.checkpoint(tmp_path)
    run.resumed_from(tmp_path)
    with run.checkpoint(tmp_path):
        pass


def test_a_forked_child_does_not_record_its_parents(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the parent has yet to record is the parent's."""
    monkeypatch.setattr(checkpoints, "PLAIN_SECONDS", 1e9)  # no round records it meanwhile
    run.checkpoint("s3://a", step=1)
    child = os.fork()
    if child == 0:
        os._exit(len(run.checkpoints._plain))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(run.checkpoints._plain) == 1


def tree(place: Path, files: int) -> Path:
    """A folder with files."""
    place.mkdir()
    for number in range(files):
        (place / f"{number}.bin").write_bytes(bytes(number))
    return place


def test_measuring_is_bounded(tmp_path: Path) -> None:
    """Too many files, or too much time, make the measurement incomplete; a missing path has no files."""
    place = tree(tmp_path / "many", 20)
    assert measure(str(place)).complete
    few = measure(str(place), files=5)
    assert (few.files, few.complete, few.content) == (5, False, "")
    ticks = iter(range(0, 1000, 6))
    late = measure(str(place), clock=lambda: float(next(ticks)))
    assert (late.complete, late.files < 20) == (False, True)
    assert (measure(str(tmp_path / "none")).files, measure(str(tmp_path / "none")).complete) == (0, False)


def test_hashes(tmp_path: Path) -> None:
    """The manifest follows names, sizes and times; the content that of small checkpoints only, wherever they lie."""
    one, other = tree(tmp_path / "one", 4), tree(tmp_path / "other", 4)
    for place in (one, other):
        for path in place.iterdir():
            os.utime(path, (1, 1))
    assert measure(str(one)) == measure(str(other))
    os.utime(one / "2.bin", (2, 2))
    changed = measure(str(one))
    assert changed.manifest != measure(str(other)).manifest
    assert changed.content == measure(str(other)).content
    (one / "2.bin").write_bytes(b"ab")
    assert measure(str(one)).content != measure(str(other)).content
    assert measure(str(one), content=3).content == ""


def test_links_and_closed_folders_do_no_harm(tmp_path: Path) -> None:
    """A loop of links is not followed; a broken one makes the checkpoint incomplete."""
    place = tree(tmp_path / "linked", 2)
    (place / "loop").symlink_to(place)
    assert measure(str(place)).files == 3
    (place / "broken").symlink_to(place / "nowhere")
    assert not measure(str(place)).complete


def test_a_call_is_quick(run: Run, tmp_path: Path) -> None:
    """A thousand files are not looked at by the calling thread."""
    place = tree(tmp_path / "many", 1000)
    seen: list[str] = []
    before: Callable[..., Any] = os.stat
    began = time.thread_time()
    try:
        os.stat = lambda *given, **more: (seen.append(threading.current_thread().name), before(*given, **more))[1]  # type: ignore[assignment,func-returns-value]
        run.checkpoint(place, step=1)
    finally:
        os.stat = before  # type: ignore[assignment]
    assert time.thread_time() - began < 0.1
    assert threading.current_thread().name not in seen


def test_lineage_is_part_of_the_start(tmp_path: Path) -> None:
    """`parent` takes an id or a run; a wrong one is refused with the fix."""
    with stepscope.init(home=tmp_path, run_id="one", probes=False, otel=False) as parent:
        kept = parent
    with stepscope.init(home=tmp_path, run_id="two", parent=kept, from_step=0, probes=False, otel=False) as run:
        assert (run.settings.parent, run.settings.from_step) == ("one", 0)
    wrong: dict[str, Any]
    for wrong in ({"parent": 1.5}, {"parent": "a\nb"}, {"from_step": "x"}, {"from_step": 1.5}, {"from_step": 2**70}):
        with pytest.raises(stepscope.ConfigError, match=next(iter(wrong))):
            stepscope.init(home=tmp_path, **wrong)
