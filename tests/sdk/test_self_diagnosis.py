"""Diagnosis in the trainer: findings are recorded as alerts and passed to `on_alert`; the loop feels nothing."""

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.journal.segments import Tail
from stepscope.model import names
from stepscope.model.records import Alert, Record
from stepscope.sdk import self_diagnosis
from stepscope.sdk.self_diagnosis import SelfDiagnosis


def _written(run: stepscope.Run) -> list[Record]:
    folders = (run.home / "runs" / run.id).iterdir()
    return [record for each in folders if each.is_dir() for batch in Tail(each).read() for record in batch.records]


def _found(run: stepscope.Run) -> list[Alert]:
    written = _written(run)
    return [each for each in written if isinstance(each, Alert) and each.name == names.ALERT_FINDING]


def _begin(tmp_path: Path, **given: Any) -> stepscope.Run:
    return stepscope.init(home=tmp_path, probes=False, capture_logs=False, otel=False, **given)


def _nan(run: stepscope.Run) -> None:
    """Record a run with a NaN, once the diagnosis is loaded."""
    for step in range(60):
        if step == 40:
            run.flush()
            deadline = time.monotonic() + 300
            while run.diagnosis is not None and not run.diagnosis.loaded and time.monotonic() < deadline:
                time.sleep(0.01)
        run.log({"loss": math.nan if step == 50 else 2.0 + 0.01 * math.sin(step)}, step=step)


def test_a_finding_is_an_alert_and_a_callback(tmp_path: Path) -> None:
    """A NaN is recorded as an alert that describes it, and `on_alert` gets the finding on another thread."""
    told: list[tuple[Finding, str]] = []
    run = _begin(tmp_path, on_alert=lambda finding: told.append((finding, threading.current_thread().name)))
    _nan(run)
    run.finish()
    (alert,) = _found(run)
    assert alert.attrs["stepscope.finding.kind"] == "not_finite"
    assert (alert.attrs["stepscope.finding.since"], alert.attrs["stepscope.finding.key"]) == (50, "loss")
    ((finding, thread),) = told
    assert (finding.kind, finding.step, finding.text) == ("not_finite", 50, alert.message)
    assert thread == "stepscope-on-alert"


def test_what_on_alert_raises_is_counted(tmp_path: Path) -> None:
    """A callback with a bug changes nothing else."""

    def broken(finding: Finding) -> None:
        raise RuntimeError("oops")

    run = _begin(tmp_path, on_alert=broken)
    _nan(run)
    assert run.finish()
    assert run.outcomes.snapshot()["failed/on_alert/RuntimeError"] == 1
    assert len(_found(run)) == 1


def test_without_a_callback_nothing_is_diagnosed_here(tmp_path: Path) -> None:
    """The trainer diagnoses only with `on_alert` or the setting, since the hub diagnoses every run."""
    run = _begin(tmp_path)
    assert run.diagnosis is None
    run.finish()
    asked = _begin(tmp_path, diagnosis=True)
    assert asked.diagnosis is not None
    asked.finish()


def test_the_diagnosis_can_be_turned_off(tmp_path: Path) -> None:
    """With the setting off, nothing is diagnosed."""
    run = _begin(tmp_path, diagnosis=False)
    _nan(run)
    run.finish()
    assert _found(run) == []


def test_on_alert_must_be_callable(tmp_path: Path) -> None:
    """A wrong argument is refused when the run begins."""
    with pytest.raises(stepscope.ConfigError, match="on_alert must be a function"):
        _begin(tmp_path, on_alert="mail me")


def test_trainer_and_hub_find_one_thing(tmp_path: Path) -> None:
    """A diagnosis of what the trainer wrote, its alerts among it, has the same finding once."""
    run = _begin(tmp_path, diagnosis=True)
    _nan(run)
    run.finish()
    diagnosis = Diagnosis()
    diagnosis.feed_many(0, _written(run))
    assert [(each.kind, each.step) for each in diagnosis.findings()] == [("not_finite", 50)]


def test_a_finding_of_the_trainer_stands_where_the_records_are_gone() -> None:
    """The alert alone is enough for the finding: what a quota dropped is still reported."""
    attrs = {"stepscope.finding.kind": "spike", "stepscope.finding.key": "loss", "stepscope.finding.since": 7}
    diagnosis = Diagnosis()
    diagnosis.feed(0, Alert(1, 7, None, None, None, 17, names.ALERT_FINDING, "loss spiked", attrs))
    assert [(each.kind, each.severity, each.step) for each in diagnosis.findings()] == [("spike", "ERROR", 7)]


def test_records_beyond_what_can_be_judged_are_counted(run: stepscope.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """When more is recorded than the diagnosis may take time for, it begins anew and says so."""
    monkeypatch.setattr(self_diagnosis, "MAX_WAITING", 3)
    diagnosis = SelfDiagnosis(run)
    diagnosis.take([b"x"] * 4, 1)
    assert run.outcomes.snapshot()["skipped/diagnosis/behind"] == 4


def test_it_works_in_slices(run: stepscope.Run, until: Callable[..., None]) -> None:
    """A round takes no longer than it may, and lets the loop go on between slices."""
    from stepscope.sdk.context import pack

    now, pauses = [0.0], []

    def clock() -> float:
        now[0] += 0.0001
        return now[0]

    diagnosis = SelfDiagnosis(run, clock=clock, pause=pauses.append)
    packed = pack((0, 1, 1, None, None, {"loss": 1.0}))
    diagnosis.take([packed] * 10_000, 1)
    until(lambda: diagnosis.loaded)
    diagnosis.work()
    assert now[0] < 2 * self_diagnosis.ROUND_SECONDS
    assert len(pauses) > 5


def test_a_training_loop_lowers_its_learning_rate(tmp_path: Path, until: Callable[..., None]) -> None:
    """The callback of a diverging model lowers the learning rate, and training succeeds."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    inputs = torch.randn(256, 8)
    targets = inputs @ torch.randn(8, 1) + 0.01 * torch.randn(256, 1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    diverges = threading.Event()
    run = _begin(tmp_path, flush_interval=0.01, on_alert=lambda finding: diverges.set())

    def train(step: int) -> float:
        with run.step(step):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"loss": loss.item(), "lr": optimizer.param_groups[0]["lr"]})
            return loss.item()

    losses = [train(step) for step in range(30)]
    optimizer.param_groups[0]["lr"] = 1.5
    step = 30
    while not diverges.is_set() and step < 80:
        losses.append(train(step))
        step += 1
        run.flush()
    until(diverges.is_set)
    optimizer.param_groups[0]["lr"] = 0.05
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.nan_to_num(parameter).clamp(-3, 3))
    losses += [train(step + more) for more in range(60)]
    run.finish()
    assert losses[-1] < 0.1 * losses[0]
    kinds = {alert.attrs["stepscope.finding.kind"] for alert in _found(run)}
    assert kinds & {"lr_schedule", "spike", "not_finite", "divergence", "level_shift"}
