"""A run folded into one summary."""

import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.journal import layout
from stepscope.journal.run_summary import RunSummary, read_run
from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Log, Metric, Record, Span
from tests.cli import journals
from tests.cli.journals import START, alert, event, finished, log, metric, span


def batch(*records: Record, attempt: int = 1, rank: int = 0, seq: int = 0, **who: object) -> Batch:
    """A batch of one writer."""
    writer = Writer(id=f"r{rank}-a{attempt}", run="R", project="gpt", attempt=attempt, rank=rank, **who)  # type: ignore[arg-type]
    return Batch(writer, seq, list(records))


def fold(batches: Iterable[Batch]) -> RunSummary:
    """A summary that took some batches."""
    summary = RunSummary()
    for each in batches:
        summary.take(each)
    return summary


def test_no_batches_are_an_empty_summary() -> None:
    """A run that has not written yet is no error."""
    summary = fold([])
    assert (summary.attempts, summary.ranks, summary.last_step, summary.started) == ([], [], None, None)
    assert summary.counters == {}


steps = st.none() | st.integers(-5, 5)
metrics = st.builds(
    Metric,
    st.integers(0, 50),
    steps,
    st.sampled_from([None, "step", "policy_version"]),
    st.sampled_from([None, "trainer", "stepscope"]),
    st.dictionaries(st.sampled_from("abc"), st.floats() | st.integers(-9, 9), max_size=3),
)
spans = st.builds(
    lambda time, step, lasts: Span(time, lasts, step, None, b"t" * 16, bytes([time]) * 8, None, "s"),
    st.integers(0, 50), steps, st.none() | st.integers(0, 9),
)  # fmt: skip


@given(st.lists(metrics | spans | st.just(log("x")) | st.just(alert("a")), max_size=40))
def test_a_batch_is_folded_as_its_records_are(records: list[Record]) -> None:
    """The summary does not depend on how records are grouped into batches."""
    whole = fold([batch(*records)] if records else [])
    parts = fold([batch(record, seq=seq) for seq, record in enumerate(records)])
    assert repr(whole) == repr(parts)


def test_keys_carry_their_category() -> None:
    """One key, one row, wherever it was logged from."""
    summary = fold([batch(metric(1, loss=2.0), metric(2, None, loss=3.0), metric(3, loss=math.nan))])
    assert set(summary.keys) == {"trainer/loss", "loss"}
    assert summary.keys["trainer/loss"].count == 2
    assert summary.keys["trainer/loss"].non_finite == 1
    assert summary.last_step == 3


def test_the_newest_attempt_tells_the_last_step_and_the_name() -> None:
    """A restart from an earlier checkpoint is not behind its former self."""
    summary = fold(
        [
            batch(metric(100, loss=1.0), name="old"),
            batch(metric(60, loss=1.0), attempt=2, name="new"),
        ]
    )
    assert (summary.attempts, summary.last_step, summary.name) == ([1, 2], 60, "new")


def test_the_plain_step_is_preferred_to_other_axes() -> None:
    """One run can have several steps; the list shows the one called step."""
    other = Metric(START, 7, "policy_version", None, {"x": 1.0})
    assert fold([batch(metric(3, loss=1.0), other)]).last_step == 3
    assert fold([batch(other)]).last_step == 7


def test_an_open_span_is_open_until_it_ends() -> None:
    """A hung step can be seen, an ended one is counted."""
    summary = fold([batch(span("a", 1, None), span("b", 2, None), span("a", 1, 50))])
    assert [each.name for _, each in summary.open_spans.values()] == ["b"]
    assert summary.spans["a"].count == 1


def test_start_brings_config_and_environment() -> None:
    """What was configured and where it ran, the newest attempt last."""
    first = event(names.EVENT_STARTED, config={"lr": 1, "depth": 2}, python="3.11")
    second = event(names.EVENT_STARTED, config={"lr": 3}, python="3.12")
    summary = fold([batch(first), batch(second, attempt=2)])
    assert summary.config == {"lr": 3, "depth": 2}
    assert summary.environment == {"python": "3.12"}


def test_events_alerts_exceptions_and_logs_are_counted() -> None:
    """All are counted, the recent ones kept."""
    error = event(names.EVENT_EXCEPTION, **{"exception.type": "ValueError"})
    alerts = [alert("loss.nan")] * 60
    summary = fold([batch(event("milestone"), error, log("x"), log("y"), finished("failed"), *alerts)])
    assert summary.events == {"milestone": 1, "exception": 1, names.EVENT_FINISHED: 1}
    assert summary.alerts == {"loss.nan": 60}
    assert len(summary.recent_alerts) == 50
    assert [each.attrs["exception.type"] for each in summary.exceptions] == ["ValueError"]
    assert summary.logs == {"WARN": 2}
    assert summary.newest[0].reported_end == "failed"


def test_own_counters_are_the_last_of_each_writer_added_up() -> None:
    """Totals are no points: the newest of each process counts."""

    def beat(value: int) -> Metric:
        return Metric(START, None, None, "stepscope", {"dropped/metric/disk": value})

    summary = fold([batch(beat(1), beat(5)), batch(beat(10), rank=1)])
    assert summary.counters == {"dropped/metric/disk": 15}
    assert summary.keys == {}


def test_read_run_reads_every_writer_and_counts_the_damage(tmp_path: Path) -> None:
    """A flipped bit costs one frame, is counted, and the rest is summed up."""
    folder = journals.write(tmp_path, "R", *([metric(n, loss=float(n))] for n in range(10)))
    journals.write(tmp_path, "R", [metric(4, loss=50.0)], rank=1)
    path = layout.list_segments(folder)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    summary = read_run(tmp_path, "R")
    assert summary.ranks == [0, 1]
    assert summary.keys["trainer/loss"].count == 10
    assert summary.keys["trainer/loss"].high == 50.0
    assert sum(each.damaged for each in summary.writers.values()) == 1


def test_a_writer_without_one_whole_frame_is_known_by_its_folder(tmp_path: Path) -> None:
    """Even then the rank and the attempt are known."""
    folder = journals.write(tmp_path, "R", [metric(1, loss=1.0)], rank=3, attempt=2)
    layout.list_segments(folder)[0].write_bytes(b"nothing of ours")
    summary = read_run(tmp_path, "R")
    assert (summary.attempts, summary.ranks) == ([2], [3])


def test_a_clock_that_was_set_does_not_change_how_long_a_run_lasted() -> None:
    """An hour ahead at the start and corrected after ten seconds: it began, and lasted, as the right clock has it."""
    hour = 3600 * journals.SECOND
    ahead = [Metric(START + hour + second * journals.SECOND, second, None, None, {"x": 1.0}) for second in range(10)]
    jump = Event(START + 10 * journals.SECOND, None, None, None, None, 13, names.EVENT_CLOCK, {"seconds": -3600.0})
    right = [Metric(START + second * journals.SECOND, second, None, None, {"x": 1.0}) for second in range(11, 20)]
    early = Metric(START + 10 * journals.SECOND - 1, 10, None, None, {"x": 1.0})  # before the jump was noticed
    wall = {"wall_ns": START + hour}
    summary = fold([batch(*ahead, early, **wall), batch(jump, seq=1, **wall), batch(*right, seq=2, **wall)])
    assert (summary.started, summary.ended) == (START, START + 19 * journals.SECOND)


def test_a_clock_that_was_set_forward() -> None:
    """The same with a clock that was an hour behind."""
    hour = 3600 * journals.SECOND
    behind = [Metric(START - hour + second * journals.SECOND, second, None, None, {"x": 1.0}) for second in range(10)]
    jump = Event(START + 10 * journals.SECOND, None, None, None, None, 13, names.EVENT_CLOCK, {"seconds": 3600.0})
    wall = {"wall_ns": START - hour}
    summary = fold([batch(*behind, **wall), batch(jump, seq=1, **wall)])
    assert (summary.started, summary.ended) == (START, START + 10 * journals.SECOND)


def test_a_line_with_a_time_of_its_own_does_not_move_the_run(tmp_path: Path) -> None:
    """Lines of last year or of a wrong clock count from when they were observed."""
    odd = [Log(time, None, None, None, None, 9, "old", observed=START + 5) for time in (1, START + 10**18)]
    journals.write(tmp_path, "R", [Metric(START, 1, None, None, {"x": 1.0}), *odd])
    summary = read_run(tmp_path, "R")
    assert (summary.started, summary.ended) == (START, START + 5)


@pytest.mark.parametrize("start", [0, 1, START - 365 * 86_400 * journals.SECOND])
def test_a_span_with_an_old_start_does_not_move_the_run(tmp_path: Path, start: int) -> None:
    """A start that was given explicitly, last year or at the epoch, is that of the span only."""
    old = Span(start, START + 5 - start, 1, None, bytes(15) + b"t", bytes(7) + b"s", None, "old")
    for records in ([Metric(START, 1, None, None, {"x": 1.0}), old], [old]):
        journals.write(tmp_path, f"R{len(records)}", records, wall_ns=START)
        summary = read_run(tmp_path, f"R{len(records)}")
        assert (summary.started, summary.ended) == (START, START + 5)


@pytest.mark.parametrize("shifts", [[-3600], [3600], [-3600, 7200], [-864_000, -1], [0.5, -0.25, 60]])
def test_records_after_a_change_of_the_clock_count_although_they_are_in_its_batch(shifts: list[float]) -> None:
    """Ten seconds before, between and after changes of the clock, each written as one batch with its change."""
    ahead = [-sum(shifts[index:]) for index in range(len(shifts) + 1)]
    wall = START + int(ahead[0] * journals.SECOND)
    batches = []
    for index, error in enumerate(ahead):
        times = [START + int((10 * index + second + error) * journals.SECOND) for second in range(10)]
        records: list[Record] = [Metric(time, index, None, None, {"x": 1.0}) for time in times]
        if index:
            jump = {"seconds": float(shifts[index - 1])}
            records.insert(0, Event(times[0], None, None, None, None, 13, names.EVENT_CLOCK, jump))
        batches.append(batch(*records, seq=index, wall_ns=wall))
    summary = fold(batches)
    assert (summary.started, summary.ended) == (START, START + (10 * len(shifts) + 9) * journals.SECOND)
    joined = fold([batch(*(record for each in batches for record in each.records), wall_ns=wall)])
    assert (joined.started, joined.ended) == (summary.started, summary.ended)
