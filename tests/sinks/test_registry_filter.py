"""Which records a sink gets, by its options and by default."""

from typing import Any

import pytest

from stepscope.model.errors import ConfigError
from stepscope.model.records import Alert, Event, Log, Metric, Record, Span, kind
from stepscope.sinks.registry import OWN_RECORDS, RecordFilter, parse, read_filter

T = 1_700_000_000_000_000_000
LOSS = Metric(T, 1, None, "trainer", {"loss": 0.5, "lr": 1e-4})
CPU = Metric(T, None, None, "system", {"cpu_percent": 3.0})
OWN = Metric(T, None, None, "stepscope", {"sink/x/written": 3})
SPAN = Span(T, 5, 1, None, b"\1" * 16, b"\1" * 8, None, "train.step")
LOG = Log(T, 1, None, None, None, 9, "hello", {}, "my.module")
STARTED = Event(T, None, None, None, None, 9, "train.run.started", {"argv": ["train.py", "--secret"]})
FINISHED = Event(T, None, None, None, None, 9, "train.run.finished", {"status": "finished"})
REFUSED = Event(T, None, None, None, None, 13, "stepscope.sink.refused", {})
MILESTONE = Event(T, 1, None, None, None, 9, "milestone", {})
ALERT = Alert(T, 1, None, None, None, 13, "high KL", "0.2")
OTEL = Metric(T, None, None, None, {"system.cpu.time": 1.0})
EDITED = Event(T, None, None, None, None, 9, "train.run.edited", {"tags": ["x"]})
ALL: list[Record] = [LOSS, CPU, OWN, SPAN, LOG, STARTED, FINISHED, EDITED, REFUSED, MILESTONE, ALERT, OTEL]


def passing(records: RecordFilter) -> list[Record]:
    """What of all records passes."""
    return [kept for record in ALL if (kept := records.apply(record)) is not None]


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ({"include": ["trainer/*"]}, [LOSS]),
        ({"include": ["train/*"]}, [LOSS]),
        ({"include": "trainer/*, kind:alert"}, [LOSS, ALERT]),
        ({"include": ["kind:metric"], "exclude": ["s*/*"]}, [LOSS, OTEL]),
        ({"include": ["my.*"]}, [LOG]),
        ({"include": ["*"]}, ALL),
        ({"exclude": []}, ALL),
        (
            {"include": ["*"], "exclude": ["kind:span", "kind:log", "train.*"]},
            [LOSS, CPU, OWN, REFUSED, MILESTONE, ALERT, OTEL],
        ),
    ],
)
def test_patterns(options: dict[str, Any], passed: list[Record]) -> None:
    """Keys with their category, names, loggers and kinds; `include` and an empty `exclude` replace the default."""
    assert passing(read_filter("x", options, ("*",))) == passed


def test_leaving_out_more_lets_nothing_else_pass() -> None:
    """`exclude` alone is added to what is left out by default, the command line and the machine among others."""
    by_default = passing(read_filter("x", {}, OWN_RECORDS))
    found = passing(read_filter("x", {"exclude": ["kind:span", "kind:log"]}, OWN_RECORDS))
    assert found == [each for each in by_default if not isinstance(each, (Span, Log))]


def test_keys_of_one_metric_pass_by_themselves() -> None:
    """A row of values keeps those that match."""
    kept = RecordFilter(include=("*/loss",)).apply(LOSS)
    assert isinstance(kept, Metric)
    assert (kept.values, kept.step, kept.category) == ({"loss": 0.5}, 1, "trainer")


@pytest.mark.parametrize("name", ["otlp", "datadog", "tinker", "mlflow"])
def test_our_own_records_stay_out_of_the_systems_of_others(name: str) -> None:
    """Self-telemetry and readings of the machine do not leave unless asked for; nor does the command line.

    MLflow gets the start and end of a run, which are its params and its status there, and no logs, which it lacks.
    """
    options = {"tinker": {"url": "http://x"}, "datadog": {"api_key": "k"}}.get(name, {})
    for chosen in parse([{name: options}], {}):
        others = [STARTED, FINISHED, EDITED] if name == "mlflow" else [LOG]
        expected = [each for each in ALL if each in [LOSS, SPAN, *others, MILESTONE, ALERT, OTEL]]
        assert passing(chosen.filter) == expected
    for chosen in parse([{name: {**options, "include": ["*"]}}], {}):
        assert passing(chosen.filter) == ALL


@pytest.mark.parametrize("name", ["hub", "console", "prometheus"])
def test_our_own_systems_get_everything(name: str) -> None:
    """The hub shows it, the console knows what to print, and the page of metrics is under our own name."""
    (chosen,) = parse([name], {})
    assert passing(chosen.filter) == ALL
    (some,) = parse([{name: {"include": ["kind:event"]}}], {})
    assert {kind(each) for each in passing(some.filter)} == {"event"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"include": 5}, "list of patterns"),
        ({"include": {"a": 1}}, "list of patterns"),
        ({"exclude": [""]}, "not a pattern"),
        ({"exclude": [3]}, "not a pattern"),
        ({"exclude": ["kind:logs"]}, "known: metric, span, log, event, alert"),
        ({"inclde": ["x"]}, "did you mean 'include'"),
    ],
)
def test_wrong_options_name_the_fix(options: dict[str, Any], words: str) -> None:
    """Each error says what would be right."""
    with pytest.raises(ConfigError, match=words):
        parse([{"hub": options}], {})
