"""The probe of TPUs, with answers in the documented form of libtpu's monitoring library; the hardware is not here."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from stepscope.sdk.probes import tpu

V5E = {
    "duty_cycle_pct": ["0.00", "99.87", "12.50", "0.00"],
    "hbm_capacity_usage": ["0", "8522039296", "4261019648", "0"],
    "hbm_capacity_total": ["17044078592"] * 4,
}
"""Four chips of one core, as `get_metric(NAME).data()` lists them: texts, in the order of the chips."""
V3 = {
    "duty_cycle_pct": ["50.00", "0.00"],
    "hbm_capacity_usage": ["1000", "2000", "0", "0"],
    "hbm_capacity_total": ["17179869184"] * 4,
}
"""Two chips of two cores; memory is that of a core."""


def library(monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[str]] | None) -> None:
    """Install a module with the documented interface; without answers it raises, as before a program runs."""

    def get_metric(name: str) -> SimpleNamespace:
        if answers is None:
            raise RuntimeError("the TPU runtime is not running")
        return SimpleNamespace(data=lambda: answers[name])

    sdk = ModuleType("libtpu.sdk")
    sdk.tpumonitoring = SimpleNamespace(get_metric=get_metric)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "libtpu", ModuleType("libtpu"))
    monkeypatch.setitem(sys.modules, "libtpu.sdk", sdk)


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """The files of four chips."""
    for number in range(4):
        (tmp_path / f"accel{number}").touch()
    return tmp_path


def test_every_chip_is_read_under_nvidias_names(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The duty cycle is the utilization; the memory of the cores of a chip is added up."""
    library(monkeypatch, V5E)
    (chips,) = tpu.open_gpus(dev)
    reading = chips.read()
    assert chips.detail == "4 TPU chips, by libtpu"
    assert [reading[f"gpu/{chip}/utilization"] for chip in range(4)] == pytest.approx([0, 0.9987, 0.125, 0])
    assert reading["gpu/1/memory_used_bytes"] == 8522039296
    assert reading["gpu/1/memory_utilization"] == 0.5
    assert len(reading) == 16
    library(monkeypatch, V3)
    (chips,) = tpu.open_gpus(dev)
    reading = chips.read()
    assert (reading["gpu/0/memory_used_bytes"], reading["gpu/0/memory_limit_bytes"]) == (3000, 2 * 17179869184)
    assert len(reading) == 8


@pytest.mark.parametrize("answers", [None, {name: [] for name in V5E}])
def test_before_the_program_uses_them_there_is_nothing(
    dev: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[str]] | None
) -> None:
    """The probe stays on: libtpu answers once the program runs."""
    library(monkeypatch, answers)
    (chips,) = tpu.open_gpus(dev)
    assert chips.read() == {}


def test_no_chip_and_no_library_are_reasons(dev: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is not imported where there is no TPU."""
    monkeypatch.setitem(sys.modules, "libtpu.sdk", None)
    with pytest.raises(ImportError, match="pip install -U libtpu"):
        tpu.open_gpus(dev)
    with pytest.raises(OSError, match="no TPU"):
        tpu.open_gpus(tmp_path / "none")
