"""What a run records."""

import copy
import enum
import logging
import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.model import names
from stepscope.model.records import Alert, Event, Metric, Record

Records = Callable[..., list[Record]]


def logged(records: Records) -> list[Metric]:
    """The metrics of the user, without our own counters."""
    return [metric for metric in records(Metric) if metric.category != "stepscope"]


def rejections(run: stepscope.Run) -> dict[str, int]:
    """What was rejected so far, by reason."""
    found = run.outcomes.snapshot().items()
    return {name.removeprefix("rejected/value/"): count for name, count in found if name.startswith("rejected")}


def test_log_keeps_numbers_step_and_category(run: stepscope.Run, records: Records) -> None:
    """A plain log call comes back as it was, with its category as prefix."""
    run.log({"loss": 0.5, "n": 3}, step=7, category="TRAINER")
    (metric,) = logged(records)
    assert (metric.step, metric.axis, dict(metric.points())) == (
        7,
        None,
        {"trainer/loss": 0.5, "trainer/n": 3},
    )


@pytest.mark.parametrize(
    ("word", "prefix"),
    [
        ("TRAIN", "trainer"),
        ("act", "actor"),
        ("Eval", "evaluator"),
        ("MISC", "misc"),
        ("My Own/", "my own"),
        ("", "misc"),
    ],
)
def test_categories_and_their_aliases(run: stepscope.Run, records: Records, word: str, prefix: str) -> None:
    """Known words mean their category; any other is its own prefix."""
    run.log({"a": 1.0}, step=0, category=word)
    assert [metric.category for metric in logged(records)] == [prefix]


def test_the_dict_may_be_reused(run: stepscope.Run, records: Records) -> None:
    """Changing the dict or an array after the call changes nothing recorded."""
    metrics: dict[str, Any] = {"a": 1.0}
    array = np.array(2.0)
    run.log(metrics, step=0)
    run.log({"b": array}, step=1)
    metrics["a"] = 9.0
    array += 5
    assert [metric.values for metric in logged(records)] == [{"a": 1.0}, {"b": 2.0}]


def test_a_wrong_value_costs_only_itself(run: stepscope.Run, records: Records) -> None:
    """One bad value is counted with its reason, the others are kept."""
    run.log({"a": 1.0, "text": "x", "none": None, "many": [1, 2]}, step=0)
    assert logged(records)[0].values == {"a": 1.0}
    assert rejections(run) == {"string": 1, "none": 1, "vector": 1}


def test_one_warning_per_key(run: stepscope.Run, records: Records, caplog: pytest.LogCaptureFixture) -> None:
    """A key that is wrong a hundred times is warned of once."""
    for step in range(100):
        run.log({"a": 1.0, "text": "x"}, step=step)
    assert len(logged(records)) == 100
    assert [line.message for line in caplog.records if "text" in line.message] == [
        "stepscope: 'text' was rejected (string) and counted; training continues"
    ]


class Degrees(float):
    """A float that is more than one."""


class Level(enum.IntEnum):
    """An integer that is more than one."""

    HIGH = 3


def test_numbers_of_other_types_are_numbers(run: stepscope.Run, records: Records) -> None:
    """Subclasses of float and int, fractions and decimals are recorded as the numbers they are."""
    run.log({"a": Degrees(1.5), "b": Level.HIGH, "c": Fraction(1, 2), "d": Decimal("0.25"), "e": True}, step=0)
    for value in (Degrees(1.5), Level.HIGH, Fraction(1, 2), np.float64(0.5), True):
        run.log({"alone": value}, step=1)
    together, *alone = (metric.values for metric in logged(records))
    assert together == {"a": 1.5, "b": 3, "c": 0.5, "d": 0.25, "e": 1}
    assert [values["alone"] for values in alone] == [1.5, 3, 0.5, 0.5, 1]


@pytest.mark.parametrize("steps", [[5, 3, 3, -1, 100, 2**62]])
def test_steps_come_in_any_order(run: stepscope.Run, records: Records, steps: list[int]) -> None:
    """Steps may go back, repeat, skip and be negative."""
    for step in steps:
        run.log({"a": 1.0}, step=step)
    assert [metric.step for metric in logged(records)] == steps


@pytest.mark.parametrize("step", [1.5, "3", 2**70, object()])
def test_a_wrong_step_is_counted_not_raised(run: stepscope.Run, records: Records, step: Any) -> None:
    """A step that is no 64-bit integer rejects the call."""
    run.log({"a": 1.0}, step=step)
    with run.step(step):
        pass
    assert logged(records) == []
    assert sum(rejections(run).values()) == 2


def test_without_a_step_the_current_one_counts(run: stepscope.Run, records: Records) -> None:
    """Inside run.step its number and axis ride along, and between steps; before the first, a counter of the run."""
    run.log({"a": 1.0})
    run.log({"a": 1.5})
    with run.step(40, name="policy_version"):
        run.log({"a": 2.0})
    run.log({"a": 3.0})
    assert [(metric.step, metric.axis) for metric in logged(records)] == [
        (0, None),
        (1, None),
        (40, "policy_version"),
        (40, "policy_version"),
    ]


def test_what_is_evaluated_after_an_epoch_is_at_its_last_step(run: stepscope.Run, records: Records) -> None:
    """Values that are logged between steps stand beside those of the steps, whichever way these were told."""
    for epoch in range(2):
        for step in range(epoch * 3, epoch * 3 + 3):
            run.log({"loss": 1.0}, step=step)
        run.log({"val": 0.5})
    run.log({"epoch/lr": 0.1}, step=7, axis="epoch")
    run.log({"val": 0.4})
    with run.step(9):
        run.log({"loss": 1.0})
    run.log({"loss": 1.0}, step=100)
    run.log({"val": 0.3})
    found = [metric.step for metric in logged(records) if "val" in metric.values]
    assert found == [2, 5, 5, 9]


def test_a_value_without_a_name_is_counted(run: stepscope.Run, records: Records) -> None:
    """The others of the call are kept."""
    run.log({"": 1.0, "a": 2.0})
    assert [metric.values for metric in logged(records)] == [{"a": 2.0}]
    assert sum(rejections(run).values()) == 1


def test_numpy_steps_are_integers(run: stepscope.Run, records: Records) -> None:
    """An integer of numpy is a step."""
    run.log({"a": 1.0}, step=np.int64(4))
    assert logged(records)[0].step == 4


def test_not_a_number_and_infinity_are_kept(run: stepscope.Run, records: Records) -> None:
    """NaN and both infinities are recorded as they are."""
    run.log({"nan": math.nan, "up": math.inf, "down": -math.inf}, step=0)
    values = logged(records)[0].values
    assert math.isnan(float(values["nan"]))
    assert (values["up"], values["down"]) == (math.inf, -math.inf)


@pytest.mark.parametrize("metrics", [None, 3, [("a", 1.0)], "text"])
def test_what_is_no_dict_is_counted(run: stepscope.Run, records: Records, metrics: Any) -> None:
    """Calling log with anything but a mapping raises nothing."""
    run.log(metrics, step=0)
    assert logged(records) == []
    assert sum(rejections(run).values()) == 1


def test_events_and_alerts(run: stepscope.Run, records: Records) -> None:
    """Events and alerts carry name, severity, step and data, with secrets masked."""
    with run.step(3):
        run.event(
            "milestone",
            {"text": "hi", "api_key": "s", "deep": {"Authorization": "s", "tokens": 5}},
            "WARNING",
        )
        run.alert("diverged", "ERROR", "loss is 9", loss=9.0)
    event = next(e for e in records(Event) if e.name == "milestone")
    (alert,) = records(Alert)
    assert event.attrs == {
        "text": "hi",
        "api_key": "[redacted]",
        "deep": {"Authorization": "[redacted]", "tokens": 5},
    }
    assert (event.severity, event.step, event.trace_id) == (13, 3, alert.trace_id)
    assert (alert.name, alert.message, alert.severity, alert.attrs) == (
        "diverged",
        "loss is 9",
        17,
        {"loss": 9.0},
    )


def test_a_run_tells_how_it_started_and_ended(tmp_path: Path) -> None:
    """The first event holds the redacted config and the environment, the last one the status."""
    with (
        pytest.raises(RuntimeError),
        stepscope.init(config={"lr": 0.1, "wandb_token": "s"}, home=tmp_path, probes=False, otel=False) as run,
    ):
        raise RuntimeError("boom")
    from stepscope.journal import layout, segments

    (writer,) = layout.list_writers(tmp_path, run.id)
    found = [r for batch in segments.read_writer(layout.writer_folder(tmp_path, run.id, writer)) for r in batch.records]
    started, failed, ended = (record for record in found if isinstance(record, Event))
    assert started.name == names.EVENT_STARTED
    assert started.attrs["config"] == {"lr": 0.1, "wandb_token": "[redacted]"}
    assert failed.attrs["exception.type"] == "RuntimeError"
    assert "boom" in failed.attrs["exception.stacktrace"]
    assert (ended.name, ended.attrs) == (names.EVENT_FINISHED, {"status": "failed"})


def test_finish_twice_and_calls_after_it(run: stepscope.Run, caplog: pytest.LogCaptureFixture) -> None:
    """After the end nothing raises and nothing hangs; what came too late is counted and reported once."""
    run.log({"a": 1.0}, step=0)
    assert run.finish()
    assert run.finish()
    assert run.flush()
    assert caplog.messages == []
    run.log({"a": 2.0}, step=1)
    run.event("late")
    with run.step(2), run.span("late"):
        pass
    assert stepscope.current_run() is None
    assert not run.flush()
    counts = run.outcomes.snapshot()
    assert [counts[f"dropped/{kind}/finished"] for kind in ("metric", "event", "span")] == [1, 1, 2]
    (line,) = caplog.messages
    assert "after the end of its run" in line


@pytest.mark.parametrize(
    ("word", "status"),
    [("failed", "failed"), ("FAILED", "failed"), ("error", "failed"), ("success", "finished"), ("running", "finished")],
)
def test_words_for_an_end(
    run: stepscope.Run, records: Records, caplog: pytest.LogCaptureFixture, word: str, status: str
) -> None:
    """A run ends as the word given says; an unknown one is reported."""
    run.finish(word)
    assert run.status == status
    assert [event.attrs for event in records(Event) if event.name == names.EVENT_FINISHED] == [{"status": status}]
    assert ["known states are finished, " in line for line in caplog.messages] == [True] * (word == "running")


def test_severities(run: stepscope.Run, records: Records, caplog: pytest.LogCaptureFixture) -> None:
    """Words in any case and levels of Python logging; an unknown one is reported, and an alert is at least WARN."""
    for word in ("error", logging.ERROR, "page me", 17):
        run.event("e", severity=word)  # type: ignore[arg-type]
        run.alert("a", word)  # type: ignore[arg-type]
    assert [event.severity for event in records(Event) if event.name == "e"] == [17, 17, 9, 9]
    assert [alert.severity for alert in records(Alert)] == [17, 17, 13, 13]
    assert [("severity" in line, "FATAL" in line) for line in caplog.messages] == [(True, True)] * 2


def test_log_asks_foreign_values_nothing(run: stepscope.Run, records: Records) -> None:
    """No arithmetic is done with what may take long to compute, and afterwards plain numbers go the short way again."""
    added = []

    class Huge:
        """Says when somebody computes with it."""

        def __radd__(self, other: object) -> object:
            added.append(other)
            return other

    run.log({"first": Huge(), "a": 1.0}, step=0)
    assert added == []
    run.log({"a": 2.0}, step=1)
    run.log({"later": Huge(), "a": 3.0}, step=2)
    seen = len(added)
    assert seen <= 1, "a run of plain numbers may be surprised once"
    run.log({"later": Huge(), "a": 4.0}, step=3)
    assert len(added) == seen
    assert [metric.values for metric in logged(records)] == [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}, {"a": 4.0}]
    assert rejections(run) == {"type Huge": 3}


def test_a_key_given_twice_is_counted(run: stepscope.Run, records: Records) -> None:
    """Where a nested and a flat key are the same, the last counts and the other is no silent loss."""
    run.log({"val": {"loss": 2.0}, "val/loss": 3.0}, step=0)
    assert [metric.values for metric in logged(records)] == [{"val/loss": 3.0}]
    assert rejections(run) == {"given twice": 1}


def test_copies_of_what_holds_a_run(run: stepscope.Run) -> None:
    """Copied, a run is itself; sent to another process, it is that process's run, or none."""
    holder = {"run": run}
    assert copy.deepcopy(holder)["run"] is run
    assert copy.copy(run) is run
    data = pickle.dumps(holder)
    assert pickle.loads(data)["run"] is run
    run.finish()
    assert pickle.loads(data)["run"].id == "disabled"


def test_the_last_counters_say_that_nothing_waits(run: stepscope.Run, records: Records) -> None:
    """What waited when they were taken was written with them."""
    run.finish()
    assert [metric.values["waiting/records"] for metric in records(Metric) if "beats" in metric.values][-1] == 0


def test_a_second_init_ends_the_first(run: stepscope.Run, tmp_path: Path) -> None:
    """Only one run is current; the earlier one is finished."""
    second = stepscope.init(home=tmp_path, probes=False, otel=False)
    assert run.status == "finished"
    assert stepscope.current_run() is second
    second.finish()


def test_system_readings_carry_the_step(run: stepscope.Run, records: Records) -> None:
    """What probes read in their thread is recorded at the step the run is in."""
    with run.step(8):
        run.log_system({"cpu/utilization": 0.5})
    assert [(m.step, dict(m.points())) for m in logged(records)] == [(8, {"system/cpu/utilization": 0.5})]
