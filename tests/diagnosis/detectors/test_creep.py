"""Memory that grows from some step on, and memory that grows once."""

import random

import pytest

from stepscope.diagnosis.run_diagnosis import Diagnosis
from stepscope.model.records import Metric

MB = 10**6


@pytest.mark.parametrize(
    "key", ["torch/memory_allocated_bytes", "system/gpu/0/memory_used_bytes", "peak_memory_active", "peak_memory_alloc"]
)
def test_a_leak_that_begins_late_is_dated(key: str) -> None:
    """Sixty steps of three hundred without it do not hide it; the step is where it begins."""
    made, rng = Diagnosis(), random.Random(1)
    for step in range(4, 500, 5):
        used = 900 * MB + rng.uniform(0, 2) * MB + max(step - 300, 0) * 64 * MB
        made.feed(0, Metric(step * 10**8, step, None, None, {key: used}))
    (found,) = made.findings()
    assert found.kind == "gpu_memory_creep"
    assert found.step is not None
    assert abs(found.step - 300) <= 25


@pytest.mark.parametrize(
    "used",
    [
        lambda step: 900 * MB + (step > 300) * 600 * MB,
        lambda step: 900 * MB + min(max(step - 300, 0), 60) * 20 * MB,
        lambda step: 900 * MB + (step // 100 % 2) * 300 * MB,
    ],
    ids=["a jump", "a cache that fills", "turns"],
)
def test_memory_that_stops_growing_is_left_alone(used: object) -> None:
    """An evaluation that begins, a cache that fills and phases that take turns are no leak."""
    made, rng = Diagnosis(), random.Random(1)
    for step in range(4, 600, 5):
        value = used(step) + rng.uniform(0, 2) * MB  # type: ignore[operator]
        made.feed(0, Metric(step * 10**8, step, None, None, {"torch/memory_allocated_bytes": value}))
    assert made.findings() == []


@pytest.mark.parametrize(("own", "severity"), [(0.0, "INFO"), (0.9, "WARN")], ids=["of others", "its own"])
def test_memory_that_other_programs_take_is_a_remark(own: float, severity: str) -> None:
    """The machine's memory grows: by this share in the process of the run."""
    made = Diagnosis()
    for at in range(80):
        grown = at * 30 * MB
        values = {
            "memory/used_bytes": 4000 * MB + grown,
            "memory/limit_bytes": 64_000 * MB,
            "process/rss_bytes": 500 * MB + own * grown,
        }
        made.feed(0, Metric(at * 5 * 10**9, 5 * at, None, "system", values))
    found = {each.key: each.severity for each in made.findings()}
    assert found["system/memory/used_bytes"] == severity


@pytest.mark.parametrize(
    ("key", "unit", "kind"),
    [
        ("process/rss_mb", 1e6, "memory_creep"),
        ("ram_used_gb", 1e9, "memory_creep"),
        ("gpu_memory_mib", 2**20, "gpu_memory_creep"),
    ],
)
def test_memory_that_a_program_logs_itself_is_watched(key: str, unit: float, kind: str) -> None:
    """In the unit that its name says."""
    made, rng = Diagnosis(), random.Random(1)
    for step in range(200):
        used = (600 + 5 * step + rng.uniform(0, 2)) * MB / unit
        made.feed(0, Metric(step * 10**8, step, None, None, {key: used}))
    (found,) = made.findings()
    assert found.kind == kind
    grown = float(found.text.partition(": ")[2].split(" GB")[0])
    assert 0.1 < grown < 1.0


@pytest.mark.parametrize("unit", [1.0, 1024.0, 2.0**30], ids=["GiB", "MiB", "bytes"])
@pytest.mark.parametrize("fills", [False, True], ids=["a leak", "a cache"])
def test_a_leak_is_named_in_few_values_of_any_unit(unit: float, fills: bool) -> None:
    """Three dozen readings of the training itself; a cache that is full after the first epoch is none."""
    key = {1.0: "sys/rss_gib", 1024.0: "sys/rss_mib"}.get(unit, "sys/rss_bytes")
    made, rng = Diagnosis(), random.Random(1)
    for step in range(0, 360, 10):
        used = 0.38 + 0.0016 * (min(step, 90) if fills else step) + rng.uniform(0, 0.004)
        made.feed(0, Metric(step * 10**8, step, None, None, {key: used * unit}))
    assert [each.kind for each in made.findings()] == ([] if fills else ["memory_creep"])
