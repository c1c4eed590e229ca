"""Lines become records: every type, the step that a gauge gives, sums of an interval, and bounds on floods."""

import math
from collections.abc import Sequence

import pytest

from stepscope.dialects.datadog.listener import processes, samples
from stepscope.dialects.datadog.listener.processes import IDLE_SECONDS, Processes
from stepscope.dialects.datadog.listener.samples import Samples
from stepscope.dialects.datadog.wire import dogstatsd_lines as lines
from stepscope.model.records import Event, Metric, Record

NOW = 1_700_000_000_000_000_000


class Clock:
    """A clock that is advanced by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def records_of(lines_sent: Sequence[str], made: Samples | None = None) -> list[Record]:
    """The records of some lines, each in a datagram of its own, after the interval has ended."""
    made = made or Samples(Processes(), "box")
    for number, line in enumerate(lines_sent):
        made.take(line, NOW + number * 1000)
        made.settle()
    made.end_interval(NOW + 10**9)
    return [record for drained in made.drain() for record in drained.records]


def points(records: Sequence[Record]) -> list[tuple[str, float, int | None, str]]:
    """Key, value, step and type of each value."""
    return [
        (key, value, record.step, record.instrument.type if record.instrument else "")
        for record in records
        if isinstance(record, Metric)
        for key, value in record.values.items()
        if isinstance(value, (int, float))
    ]


def test_every_type() -> None:
    """Gauges and samples are kept one by one, counts and sets are summed up, a rate scales a count."""
    found = records_of(
        ["a:1|g", "a:2|g", "b:1:2:3|d", "c:5|ms|@0.5", "d:1.5|h", "e:2|c|@0.5", "e:3|c", "f:x|s", "f:y|s", "f:x|s"]
    )
    assert sorted(points(found)) == [
        ("a", 1, None, ""),
        ("a", 2, None, ""),
        ("b", 1, None, "distribution"),
        ("b", 2, None, "distribution"),
        ("b", 3, None, "distribution"),
        ("c", 5, None, "timing"),
        ("d", 1.5, None, "histogram"),
        ("e", 3, None, "sum"),
        ("e", 4, None, "sum"),
        ("f", 2, None, ""),
    ]
    (timing,) = [record for record in found if isinstance(record, Metric) and "c" in record.values]
    assert timing.attrs == {"statsd.rate": 0.5}


def test_a_container_is_one_process() -> None:
    """Metrics, events and checks of a container belong to one process, whichever order its fields are in."""
    made = Samples(Processes(), "box")
    made.take("train.step:4|g|#run_id:r|c:ci-1|e:cn-x|card:low\na:1|g|card:low|e:cn-x|c:ci-1|#run_id:r|@1", NOW)
    made.take("_e{1,1}:T|t|c:ci-1|#run_id:r|e:cn-x\n_sc|up|0|e:cn-x|#run_id:r|m:fine|c:ci-1", NOW)
    (drained,) = made.drain()
    assert drained.origin.resource == {"host.name": "box", "container.id": "ci-1", "datadog.external_data": "cn-x"}
    assert [record.step for record in drained.records if not isinstance(record, Metric)] == [4, 4]
    assert made.malformed == {}


def test_lines_may_end_in_cr_lf() -> None:
    """Lines may end in CR LF, as sent from Windows."""
    assert points(records_of(["a:1|g\r\nb:2|g|#k:v\r\n", "c:3|g\r"])) == [
        ("a", 1, None, ""), ("b", 2, None, ""), ("c", 3, None, "")
    ]  # fmt: skip


def test_a_step_gauge_gives_x() -> None:
    """What follows a gauge of the step is at that step, counts and sets too, also from lines with other tags."""
    sent = ["loss:9|g|#run_id:r"]
    for step in range(3):
        sent += [f"train.step:{step}|g|#run_id:r", f"loss:{step}|g|#run_id:r,env:x", "tokens:8|c|#run_id:r"]
        sent += ["tokens:8|c|#run_id:r", "users:7|s|#run_id:r"]
    found = points(records_of([*sent, "loss:5|g|#run_id:other"]))
    assert [each for each in found if each[0] == "loss"] == [
        ("loss", 9, None, ""), ("loss", 0, 0, ""), ("loss", 1, 1, ""), ("loss", 2, 2, ""), ("loss", 5, None, ""),
    ]  # fmt: skip
    assert [each for each in found if each[0] == "tokens"] == [("tokens", 16, step, "sum") for step in range(3)]
    assert [each for each in found if each[0] == "users"] == [("users", 1, step, "") for step in range(3)]


def test_a_weaker_name_does_not_move_the_step() -> None:
    """A surer gauge decides alone once it was seen; one that is no whole number decides nothing."""
    found = records_of(["step:1|g", "a:1|g", "train.step:5|g", "a:2|g", "step:99|g", "train.step:nan|g", "a:3|g"])
    assert [each[2] for each in points(found) if each[0] == "a"] == [1, 5, 5]


def test_values_of_one_moment_share_a_record() -> None:
    """Metrics that come together with the same tags are one record; a repeated one keeps its place in time."""
    made = Samples(Processes(), "box")
    made.take("a:1|g|#x:1\nb:2|g|#x:1\na:3|g|#x:1\nb:4|g|#x:1", NOW)
    found = [record for drained in made.drain() for record in drained.records]
    assert [(record.time, record.values) for record in found if isinstance(record, Metric)] == [
        (NOW, {"a": 1.0, "b": 2.0}),
        (NOW + 1, {"a": 3.0, "b": 4.0}),
    ]


def test_timestamps() -> None:
    """A value with its own time has that time, and a count with one is not added to others."""
    found = records_of(["a:1|g|T1600000000", "b:2|c|T1600000000", "b:3|c|T1600000000", "a:2|g"])
    assert [(record.time, record.values) for record in found if isinstance(record, Metric)] == [
        (1_600_000_000 * 10**9, {"a": 1.0}),
        (1_600_000_000 * 10**9, {"b": 2.0}),
        (1_600_000_000 * 10**9, {"b": 3.0}),
        (NOW + 3000, {"a": 2.0}),
    ]


def test_what_is_not_finite_is_kept() -> None:
    """A gauge may be NaN or infinite, again and again."""
    found = [each[1] for each in points(records_of(["a:nan|g", "a:inf|g", "a:-inf|g", "a:NaN|g"]))]
    assert [math.isnan(found[0]), *found[1:3], math.isnan(found[3])] == [True, math.inf, -math.inf, True]


def test_events_and_checks_are_records() -> None:
    """Events and checks belong to the run and step of their tags."""
    found = records_of(
        ["train.step:4|g|#run_id:r", "_e{1,4}:T|text|t:error|#run_id:r,a:b", "_sc|up|2|#run_id:r|m:down"]
    )
    event, check = (record for record in found if isinstance(record, Event))
    assert (event.name, event.body, event.step, event.severity) == ("T", "text", 4, 17)
    assert event.attrs == {"datadog.alert_type": "error", "a": "b"}
    assert (check.name, check.body, check.step, check.severity) == ("up", "down", 4, 17)
    assert check.attrs == {"datadog.check": "CRITICAL"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a", lines.NO_VALUE),
        ("a:1", lines.NO_TYPE),
        ("a|g", lines.NO_VALUE),
        (":1|g", lines.NO_NAME),
        ("a:|g", lines.NO_VALUE),
        ("a:x|g", lines.BAD_NUMBER),
        ("a:1:x:3|g", lines.BAD_NUMBER),
        ("a:inf|c", lines.BAD_COUNT),
        ("a:1|z", lines.BAD_TYPE),
        ("a:1|g|@2", lines.BAD_RATE),
        ("a:1|g|Tx", lines.BAD_TIME),
        ("n" * 201 + ":1|g", lines.LONG_NAME),
        ("_e{9,9}:a|b", lines.BAD_EVENT),
        ("_sc|a", lines.BAD_CHECK),
    ],
)
def test_malformed_lines_are_counted_by_reason(line: str, reason: str) -> None:
    """A malformed line does not affect other lines, before or after they are cached."""
    made = Samples(Processes(), "box")
    for _ in range(2):
        made.take(f"a:1|g\n{line}\na:2|g\n\n", NOW)
    assert dict(made.malformed) == {reason: 2}
    assert len(points([record for drained in made.drain() for record in drained.records])) == 4


def test_a_flood_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Series beyond the limit are refused and counted; those known before go on."""
    monkeypatch.setattr(processes, "MAX_SERIES", 100)
    made = Samples(Processes(), "box")
    made.take("\n".join(f"m{number}:1|g|#run_id:r" for number in range(1000)), NOW)
    made.take("m1:2|g|#run_id:r\nother:1|g|#run_id:s", NOW)
    assert dict(made.malformed) == {processes.TOO_MANY_SERIES: 900}
    assert len(points([record for drained in made.drain() for record in drained.records])) == 102


def test_a_flood_of_tags_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So are combinations of tags, of one run and of all; what remembers them does not grow."""
    monkeypatch.setattr(processes, "MAX_SERIES", 100)
    monkeypatch.setattr(processes, "MAX_SERIES_IN_ALL", 150)
    monkeypatch.setattr(samples, "MAX_STREAMS", 50)
    made = Samples(Processes(), "box")
    for number in range(1000):
        made.take(f"m:1|g|#run_id:r{number % 2},request:{number}", NOW)
    assert dict(made.malformed) == {processes.TOO_MANY_SERIES: 850}
    assert len(made._streams) <= 50


def test_a_flood_of_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs beyond the limit are refused until others have been silent for long; nothing taken is lost then."""
    monkeypatch.setattr(processes, "MAX_PROCESSES", 10)
    clock = Clock()
    made = Samples(Processes(clock), "box")
    for number in range(20):
        made.take(f"m:1|g|#run_id:r{number}", NOW)
    assert dict(made.malformed) == {processes.TOO_MANY_RUNS: 10}
    assert len(list(made.drain())) == 10
    clock.now += IDLE_SECONDS + 1
    made.take("m:1|g|#run_id:r0\nm:1|g|#run_id:fresh\nm:2|g|#run_id:r0\nm:2|g|#run_id:r1", NOW)
    found = {drained.origin.run: len(points(drained.records)) for drained in made.drain()}
    assert found == {"r0": 2, "fresh": 1, "r1": 1}


def test_a_flood_of_members_ends_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """The members of sets are held up to a limit, and counted in more intervals beyond."""
    monkeypatch.setattr(samples, "MAX_MEMBERS", 10)
    found = [each[1] for each in points(records_of([f"s:{number}|s" for number in range(25)]))]
    assert (sum(found), max(found)) == (25, 11)


def test_a_large_line_is_no_event_by_accident() -> None:
    """A title that looks like a number, or a text that looks like a type, is no metric."""
    found = records_of(["a:1|g", "_e{1,1}:5|g", "_e{1,1}:5|g"])
    assert [type(record) for record in found] == [Metric, Event, Event]
