"""The way in that network receivers share."""

import tracemalloc
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from stepscope.hub.intake.counters import Counters
from stepscope.hub.intake.intake_journal import Intake, IntakeBatch, SequenceNumbers
from stepscope.hub.intake.scrub import TOO_MANY_SERIES, Scrubber
from stepscope.hub.limits import Limits
from stepscope.hub.receivers.ingest import (
    EMPTY_NAME,
    OTHER_PROJECT,
    STEP_OUT_OF_RANGE,
    Ingest,
    RunLimits,
    RunOwners,
    Upload,
    Writers,
)
from stepscope.model.ports import Writer
from stepscope.model.records import FIRST_STEP, LAST_STEP, Event, Log, Metric, Record, Span

WRITER = Writer(id="w", run="r", project="p")


@pytest.mark.parametrize(("ours", "refused"), [(True, {}), (False, {TOO_MANY_SERIES: 2})])
@pytest.mark.parametrize("seq", [None, 7])
def test_keys(tmp_path: Path, ours: bool, refused: dict[str, int], seq: int | None) -> None:
    """Metric keys are bound for clients that are not ours, also for an import, which numbers its own batches."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER)
    scrubber = Scrubber(Limits(keys=2))
    entry = Ingest("test", intake, scrubber, Counters(), SequenceNumbers(), RunOwners(), ours=ours)
    upload = Upload()
    entry.add(upload, WRITER, [Metric(1, 1, None, None, {key: 1.0}) for key in "abcd"], None, seq)
    entry.submit(upload).result(10)
    intake.close()
    assert +upload.rejected == refused
    assert upload.taken == 4 - sum(refused.values())


def point(time: int) -> Metric:
    """A value at a time."""
    return Metric(time, 1, None, None, {"a": 1.0})


def started(writers: Writers, writer: Writer, *records: Record) -> int:
    """Add records; when the writer that they are packed with started."""
    upload = Upload()
    assert writers.add(upload, writer, list(records), None, 1) == ""
    return msgspec.msgpack.decode(upload.batches[0], type=IntakeBatch).writer.wall_ns


def test_a_writer_starts_with_its_first_record(tmp_path: Path) -> None:
    """An exporter sends what happened before; later requests change nothing, nor does a clock ahead of ours."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER)
    entry = Ingest("test", intake, Scrubber(Limits()), Counters(), SequenceNumbers(), RunOwners())
    writers = Writers(entry, clock=lambda: 100)
    assert started(writers, WRITER, point(30), point(20)) == 20
    assert started(writers, WRITER, point(10)) == 20
    long = Span(1, 40 * 86_400 * 10**9, 1, None, bytes(16), bytes(8), None, "since the epoch")
    late = Writers(entry, clock=lambda: 10**18)
    assert started(late, WRITER, long, point(10**17)) == 40 * 86_400 * 10**9 + 1
    assert started(writers, structs.replace(WRITER, id="x"), point(500), point(0)) == 100
    intake.close()


def test_refused_writers_take_no_memory(tmp_path: Path) -> None:
    """A client that creates runs beyond the limit is refused in constant memory; admitted runs continue."""
    intake, limits = Intake(tmp_path / "journal" / "intake", WRITER), RunLimits(Limits(runs=1))
    entry = Ingest("test", intake, Scrubber(Limits()), Counters(), SequenceNumbers(), RunOwners(limits=limits))
    writers = Writers(entry, clock=lambda: 100)

    def send(count: int) -> None:
        for at in range(count):
            writer = Writer(id=f"w{at}", run=f"r{at}", project="p", resource={"text": f"{at:1000}"})
            assert (writers.add(Upload(), writer, [point(1)], None) == "") is (at == 0)

    send(100)
    tracemalloc.start()
    send(2000)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    intake.close()
    assert grown < 500_000  # each of them has a kilobyte


@pytest.mark.parametrize("run", ["", "x" * 4097, "two\nlines", "nul\0", "del\x7f", "line\u2028separator"])
@pytest.mark.parametrize("seq", [None, 7])
def test_run_ids_out_of_bounds_are_refused(tmp_path: Path, run: str, seq: int | None) -> None:
    """Records with invalid run ids are counted by reason and not written."""
    intake, counters = Intake(tmp_path / "journal" / "intake", WRITER), Counters()
    entry = Ingest("test", intake, Scrubber(Limits()), counters, SequenceNumbers(), RunOwners())
    upload = Upload()
    entry.add(upload, structs.replace(WRITER, run=run), [Metric(1, 1, None, None, {"a": 1.0})] * 3, None, seq)
    entry.submit(upload).result(10)
    intake.close()
    assert (upload.taken, upload.batches, counters.total("rejected")) == (0, [], 3)
    assert next(iter(upload.rejected)).startswith("the run ")


@pytest.mark.parametrize("field", ["run", "project", "name", "host"])
@pytest.mark.parametrize("seq", [None, 7])
def test_a_writer_with_half_a_surrogate_pair_is_refused(tmp_path: Path, field: str, seq: int | None) -> None:
    """JSON can say such a text, and no journal can hold it: its records are counted, and nothing fails."""
    intake, counters = Intake(tmp_path / "journal" / "intake", WRITER), Counters()
    entry = Ingest("test", intake, Scrubber(Limits()), counters, SequenceNumbers(), RunOwners())
    upload = Upload()
    writer = structs.replace(WRITER, **{field: "half \ud800"})
    entry.add(upload, writer, [Metric(1, 1, None, None, {"a": 1.0})] * 3, None, seq)
    entry.submit(upload).result(10)
    intake.close()
    assert (upload.taken, upload.batches, counters.total("rejected")) == (0, [], 3)


def test_run_ids_within_bounds_are_taken(tmp_path: Path) -> None:
    """Long ones, with spaces, slashes and letters of any script."""
    intake = Intake(tmp_path / "journal" / "intake", WRITER)
    entry = Ingest("test", intake, Scrubber(Limits()), Counters(), SequenceNumbers(), RunOwners())
    upload = Upload()
    for run in ("x" * 4096, "run 1/α ü", "a\u00a0b"):
        entry.add(upload, structs.replace(WRITER, run=run), [Metric(1, 1, None, None, {"a": 1.0})], None)
    entry.submit(upload).result(10)
    intake.close()
    assert (upload.taken, +upload.rejected) == (3, {})


@pytest.mark.parametrize("seq", [None, 7])
def test_steps_that_a_store_does_not_take_are_refused(tmp_path: Path, seq: int | None) -> None:
    """Each record with such a step is counted with the reason, whatever its kind, and the others are taken."""
    intake, counters = Intake(tmp_path / "journal" / "intake", WRITER), Counters()
    entry = Ingest("test", intake, Scrubber(Limits()), counters, SequenceNumbers(), RunOwners())
    upload = Upload()
    records: list[Record] = []
    for step in (FIRST_STEP - 1, FIRST_STEP - 2, LAST_STEP + 1, 2**70, None, FIRST_STEP, 0, LAST_STEP):
        records += [
            Metric(1, step, None, None, {"a": 1.0}),
            Span(1, 1, step, None, b"t" * 16, b"s" * 8, None, "span"),
            Log(1, step, None, None, None, 9, "line"),
            Event(1, step, None, None, None, 9, "event", {}),
        ]
    entry.add(upload, WRITER, records, None, seq)
    entry.submit(upload).result(10)
    intake.close()
    assert (upload.taken, +upload.rejected, counters.total("rejected")) == (16, {STEP_OUT_OF_RANGE: 16}, 16)


@pytest.mark.parametrize("seq", [None, 7])
def test_a_metric_without_a_name_is_refused(tmp_path: Path, seq: int | None) -> None:
    """Of every receiver: its values are counted with the reason, and the others of the same record are taken."""
    intake, counters = Intake(tmp_path / "journal" / "intake", WRITER), Counters()
    entry = Ingest("test", intake, Scrubber(Limits()), counters, SequenceNumbers(), RunOwners())
    upload = Upload()
    given = ({"": 1.0}, {"": 1.0, "a": 2.0}, {"b": 3.0})
    entry.add(upload, WRITER, [Metric(1, 1, None, None, dict(values)) for values in given], None, seq)
    entry.submit(upload).result(10)
    intake.close()
    assert (upload.taken, +upload.rejected, counters.total("rejected")) == (2, {EMPTY_NAME: 2}, 2)


def test_a_run_of_another_project_does_not_count_as_new(tmp_path: Path) -> None:
    """A token that may not write to runs uses up nothing of what others may create."""
    intake, limits = Intake(tmp_path / "journal" / "intake", WRITER), RunLimits(Limits(runs=1))
    owners = RunOwners(lambda run: "another", limits=limits)
    entry = Ingest("test", intake, Scrubber(Limits()), Counters(), SequenceNumbers(), owners)
    upload = Upload()
    for run in ("a", "b"):
        entry.add(upload, structs.replace(WRITER, run=run), [Metric(1, 1, None, None, {"a": 1.0})], "p")
    intake.close()
    assert +upload.rejected == {OTHER_PROJECT: 2}
    assert limits.admits("test", "c")
