"""Alerts of the training code as findings."""

import math

import pytest

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Alert, Metric

SECOND = 1_000_000_000


def alert(name: str, step: int | None, message: str = "", severity: int = 17) -> Alert:
    """An alert."""
    return Alert((step or 0) * SECOND, step, None, None, None, severity, name, message)


def test_alerts_are_findings_by_their_names() -> None:
    """How often, from which step to which, how severe, and what the worst of them said; a step is not needed."""
    made = Diagnosis(world=2)
    for step in range(700):
        made.feed(0, alert("mine", step, f"no. {step}", 13 if step < 50 else 17))
    for rank in (0, 1):
        made.feed(rank, alert("disk", None, "no space left\non /data", 21))
    made.feed(0, alert("by the way", 3, severity=9))
    second, first = sorted(made.findings(), key=lambda each: each.severity)
    assert (first.kind, first.severity, first.step, first.ranks) == ("alert", "FATAL", None, (0, 1))
    assert first.text == "alert disk: no space left on /data, 2 times on every rank"
    assert (second.severity, second.step, second.last, second.ranks) == ("ERROR", 0, 699, (0,))
    assert second.text == "alert mine: no. 50, 700 times in steps 0 to 699 on rank 0"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (alert("not a number", 20, "see the log"), True),
        (alert("watch", 21, "trainer/loss is off"), True),
        (alert("Grad-Norm", 20), True),
        (alert("disk full", 20), False),
        (alert("flossing", 20), False),
        (alert("nan", 30, "trainer/loss is NaN"), False),
        (alert("nan", None, "trainer/loss is NaN"), False),
    ],
)
def test_an_alert_about_what_is_found_anyway_is_not_told_twice(said: Alert, told: bool) -> None:
    """It is about the same when it is beside it in steps and names the metric, or what happened to it."""
    made = Diagnosis()
    for step in range(22):
        value = math.nan if step == 20 else 1.0 + step % 3
        made.feed(0, Metric(step * SECOND, step, None, "trainer", {"loss": value, "grad_norm": value}))
    made.feed(0, said)
    assert [each.kind for each in made.findings()] == (["not_finite"] if told else ["not_finite", "alert"])
