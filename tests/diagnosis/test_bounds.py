"""The diagnosis keeps a bounded amount, whatever is recorded, and what is dropped hides nothing worse."""

import random

import pytest

from benchmarks.zoo import memory
from stepscope.diagnosis import detector, exits, run_diagnosis, timing
from stepscope.diagnosis import kept_findings as kept
from stepscope.diagnosis import raised_alerts as raised
from stepscope.diagnosis.detector import drop_rarest
from stepscope.diagnosis.detectors import (
    checkpoint_growth,
    desync,
    hang,
    log_anomalies,
    regular_stalls,
    slow_link,
    stalls,
    start_settings,
    stragglers,
)
from stepscope.diagnosis.finding import Kind
from stepscope.diagnosis.kept_findings import KeptFindings
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric, Span

SECOND = 1_000_000_000
SMALL = (
    (run_diagnosis, "MAX_SERIES", 50),
    (run_diagnosis, "MAX_PLANNED", 3000),
    (detector, "MAX_SETTINGS", 100),
    (start_settings, "MAX_LATER", 20),
    (log_anomalies, "MAX_PATTERNS", 20),
    (desync, "MAX_KEYS", 100),
    (timing, "MAX_SPANS", 300),
    (stalls, "MAX_NAMES", 50),
    (stalls, "MAX_OF_RANK", 20),
    (stragglers, "MAX_NAMES", 50),
    (regular_stalls, "MAX_NAMES", 50),
    (regular_stalls, "MAX_OF_RANK", 20),
    (regular_stalls, "KEPT", 16),
    (slow_link, "MAX_NAMES", 10),
    (checkpoint_growth, "MAX_NAMES", 20),
    (hang, "MAX_NAMES", 50),
    (hang, "MAX_OPEN", 20),
    (exits, "MAX_FAILURES", 20),
    (exits, "MAX_PLACES", 100),
    (exits, "MAX_THROWN", 50),
    (raised, "MAX_NAMES", 20),
    (raised, "MAX_STEPS", 100),
    (kept, "MOST", 40),
    (kept, "MAX_ALIKE", 20),
)
"""Limits that a short test reaches."""
SPIKE = Kind("spike", "WARN", "", "")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the limits small."""
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", memory.STREAMS)
def test_the_state_of_a_run_does_not_grow_with_its_length(name: str) -> None:
    """More records, of any sort, need no more memory than the first ones."""
    lengths = [24_000, 40_000] if name == "plain" else [2000, 5000]
    sizes = [memory.size_of(engines.diagnosis) for _, engines in memory.curve(memory.STREAMS[name], lengths)]
    assert sizes[1] < 1.25 * sizes[0], sizes


@pytest.mark.usefixtures("small")
def test_new_names_do_not_hide_the_usual_ones() -> None:
    """Among ever new metrics, spans and failures a spike of the loss and a stall are still found."""
    diagnosis, rng = Diagnosis(world=1), random.Random(3)
    for step in range(600):
        for flood in (memory.new_key_sets, memory.failures):
            for _, record in flood(rng, step):
                diagnosis.feed(0, record)
        diagnosis.feed(0, Metric(step * SECOND, step, None, None, {f"part{step}/loss": 1.0}))
        bad, now, root = step == 550, step * SECOND, rng.randbytes(8)
        loss = (30.0 if bad else 1.0) + 0.01 * rng.random()
        diagnosis.feed(0, Metric(now, step, None, None, {"loss": loss}))
        took = 5 * SECOND if bad else SECOND // 10
        diagnosis.feed(0, Span(now, took, step, None, b"", rng.randbytes(8), root, "train.data_load"))
        diagnosis.feed(0, Span(now, took + SECOND // 10, step, None, b"", root, None, "train.step"))
    found = {(each.kind, each.step) for each in diagnosis.findings()}
    assert {("spike", 550), ("data_stall", 550)} <= found


@pytest.mark.usefixtures("small")
def test_a_metric_that_begins_late_is_watched() -> None:
    """Metrics that came once make room for one that is recorded again and again."""
    diagnosis = Diagnosis()
    for step in range(400):
        diagnosis.feed(0, Metric(step * SECOND, step, None, None, {f"part{step}/loss": 1.0}))
    for step in range(400, 500):
        value = 50.0 if step == 480 else 1.0 + 0.001 * (step % 7)
        diagnosis.feed(0, Metric(step * SECOND, step, None, None, {"loss": value}))
    assert [(each.kind, each.step) for each in diagnosis.findings()] == [("spike", 480)]


def _spike(step: int, weight: float, key: str = "loss") -> object:
    return SPIKE.finding(f"at {step}", 0, step=step, key=key, ranks=(0,), weight=weight)


@pytest.mark.usefixtures("small")
def test_the_mildest_are_dropped_and_counted() -> None:
    """Of many findings that are alike the worst remain, and the worst of all says how many do not."""
    found = KeptFindings()
    for step in range(100):
        found.keep(_spike(step, weight=float(step % 50)))  # type: ignore[arg-type]
    left = list(found)
    assert sorted(each.weight for each in left) == sorted([*range(40, 50)] * 2)
    assert [each.symptoms for each in left if each.symptoms] == [("80 milder ones like it, in steps 0 to 89",)]


@pytest.mark.usefixtures("small")
def test_no_kind_hides_another() -> None:
    """Many findings of one kind never displace a single one of another, and a severe one is never dropped."""
    found = KeptFindings()
    found.keep(SPIKE.finding("worst", 0, key="first", severity="FATAL", weight=0.1))
    found.keep(SPIKE.finding("alone", 0, key="alone", weight=0.1))
    for key in ("a", "b", "c"):
        for step in range(30):
            found.keep(_spike(step, 5.0, key))  # type: ignore[arg-type]
    assert len(list(found)) == kept.MOST
    assert {each.text for each in found} >= {"worst", "alone"}
    for at in range(100):
        found.keep(_spike(at, 7.0, f"key{at}"))  # type: ignore[arg-type]
    worst = next(each for each in found if each.severity == "FATAL")
    assert len(list(found)) == kept.MOST
    assert "milder findings that are not listed" in worst.symptoms[-1]


@pytest.mark.usefixtures("small")
def test_findings_that_are_withdrawn_leave_nothing() -> None:
    """A withdrawn finding leaves no state, even after others were dropped."""
    found = KeptFindings()
    made = [SPIKE.finding("high", 0, key=f"key{at}", weight=float(at)) for at in range(kept.MOST + 1)]
    for each in made:
        found.keep(each)
    for each in made:
        found.withdraw(each)
    assert list(found) == []


def test_the_rarest_are_dropped() -> None:
    """Beyond the limit the less used half is dropped."""
    uses = {f"k{at}": at for at in range(11)}
    assert drop_rarest(uses, 11, int) == []
    assert drop_rarest(uses, 10, int) == ["k0", "k1", "k2", "k3", "k4", "k5"]
    assert list(uses) == ["k6", "k7", "k8", "k9", "k10"]
