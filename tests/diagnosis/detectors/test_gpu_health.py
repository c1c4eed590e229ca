"""GPU health: slowdowns and memory errors that the driver reports."""

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric


def diagnosed(key: str, values: list[float]) -> list[Finding]:
    """The findings about readings of one GPU, one every five steps."""
    made = Diagnosis()
    for at, value in enumerate(values):
        made.feed(0, Metric(at * 5 * 10**9, 5 * at, None, "system", {f"gpu/3/{key}": value}))
    return made.findings()


def test_a_lasting_slowdown_is_named() -> None:
    """It is named with the GPU and its reason, once it shows in most of the readings."""
    (found,) = diagnosed("thermal_slowdown", [0] * 20 + [1] * 8)
    assert (found.kind, found.step) == ("gpu_slowdown", 100)
    assert found.text == "GPU 3 has been slowed down by heat since step 100"


def test_a_short_slowdown_is_normal() -> None:
    """Now and then the clock falls for a moment."""
    assert diagnosed("power_brake", [0, 0, 1, 0, 0, 0, 0, 1, 0, 0] * 5) == []


def test_memory_errors_that_come_during_the_run_are_named() -> None:
    """Errors from before it are not its own."""
    assert diagnosed("ecc_uncorrected", [2] * 10) == []
    (found,) = diagnosed("ecc_uncorrected", [2] * 10 + [3, 3])
    assert (found.kind, found.severity, found.text) == (
        "gpu_errors",
        "ERROR",
        "GPU 3 has 1 uncorrectable memory errors",
    )


def test_rows_that_cannot_be_replaced_are_named_at_once() -> None:
    """They make every result doubtful."""
    (found,) = diagnosed("rows_remap_failed", [1])
    assert "could not be replaced" in found.text


@pytest.mark.parametrize("lost", [None, 1])
def test_a_gpu_that_is_no_longer_read_is_lost(lost: int | None) -> None:
    """The machine and its other GPU are still read; one that was never read is not missed."""
    made = Diagnosis()
    for at in range(40):
        gpus = {f"gpu/{gpu}/utilization": 0.9 for gpu in (0, 1) if gpu != lost or at < 20}
        made.feed(0, Metric(at * 5 * 10**9, 5 * at, None, "system", {"cpu/load_1m": 1.0, **gpus}))
    found = [(each.kind, each.severity, each.text) for each in made.findings()]
    text = "GPU 1 has not been read since step 95, the machine still is"
    assert found == ([] if lost is None else [("gpu_lost", "ERROR", text)])


def test_gpus_of_an_earlier_attempt_are_not_missed() -> None:
    """The new attempt may be on another machine."""
    made = Diagnosis()
    for at in range(40):
        gpus = {"gpu/0/utilization": 0.9} if at < 20 else {}
        made.feed(0, Metric(at * 5 * 10**9, 5 * at, None, "system", {"cpu/load_1m": 1.0, **gpus}), 1 + (at >= 20))
    assert made.findings() == []


def test_readings_without_a_step_are_of_the_step_that_the_training_has_reached() -> None:
    """Other programs read the machine without knowing of steps: the hundredth reading is not step 100."""
    made = Diagnosis()
    for step in range(600):
        made.feed(0, Metric(step * 10**9, step, None, None, {"train/loss": 1.0 + step % 7 / 100}))
        if step % 10 == 5:
            hot = {"gpu/0/temperature_celsius": 70.0 if step < 300 else 93.0}
            made.feed(0, Metric(step * 10**9, None, None, "system", hot))
    (found,) = [each for each in made.findings() if each.kind == "gpu_hot"]
    assert found.step == 305
