"""Runs for the measurement of the page: many short ones, one with many metrics, and one with a single metric."""

from __future__ import annotations

import math
from typing import Any

STEPS = 60


def child(params: dict[str, Any]) -> dict[str, float]:
    """Write journals to a home folder: `runs` of a project, a run of `keys`, and a run of one."""
    import stepscope

    def begin(name: str) -> Any:
        return stepscope.init(project=params["project"], name=name, run_id=name, home=params["home"], **_PLAIN)

    for number in range(params["runs"]):
        with begin(f"run-{number:04d}") as run:
            for step in range(STEPS):
                loss = 2 + 3 * math.exp(-step / 20) + math.sin(number * step) / 50
                run.log({"loss": loss, "accuracy": 1 - loss / 8, "rate": 1e-3}, step=step)
    params["project"] = "single"
    with begin("single") as run:
        for step in range(STEPS):
            run.log({"loss": 1 / (step + 1)}, step=step)
    params["project"] = "keys"
    with begin("keys") as run:
        for step in range(3):
            for part in range(0, params["keys"], 1000):
                run.log(
                    {f"layer{key // 6:04d}/norm{key % 6}": key + step for key in range(part, part + 1000)}, step=step
                )
    return {}


_PLAIN = {"probes": False, "capture_logs": False, "otel": False, "quiet": True}
