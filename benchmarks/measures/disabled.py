"""Disabled calls: what the module-level functions cost with no run, and with STEPSCOPE_DISABLED=1."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, fresh

NAME = "disabled"
METHOD = (
    "A `for` loop of 100,000 calls written out in the loop, best of 15, minus the best of 15 empty loops; "
    "the dict is built beforehand. `empty function` is a Python function with the same parameters as "
    "`log` and no body, called the same way."
)
MODES = {"no run": {}, "STEPSCOPE_DISABLED=1": {"STEPSCOPE_DISABLED": "1"}}
CALLS = {
    "log": "stepscope.log(metrics, step=7)",
    "span": "stepscope.span('forward')",
    "step": "stepscope.step(7)",
    "event": "stepscope.event('milestone', metrics)",
    "alert": "stepscope.alert('slow')",
    "flush": "stepscope.flush()",
}
WITH_SPAN = "with stepscope.span('forward'): pass"
EMPTY = "empty(metrics, step=7)"


def measure(options: Options, progress: Progress) -> list[Result]:
    """Measure each disabled call in a fresh interpreter per mode."""
    rounds, count = (5, 50_000) if options.quick else (15, 100_000)
    results = []
    for mode, env in MODES.items():
        progress(f"disabled: {mode}")
        params = {"rounds": rounds, "count": count, "started": bool(env)}
        try:
            answer = fresh(__name__, params, env=env)
        except ChildError as error:
            progress(f"disabled: {mode} SKIPPED: {error}")
            results.append(Result(NAME, f"log, {mode}", OURS, skipped=str(error)))
            continue
        for call, ns in answer["calls"].items():
            stats = {"ns": ns, "times_empty": ns / answer["empty_ns"]}
            results.append(Result(NAME, f"{call}, {mode}", OURS, stats))
        results.append(Result(NAME, f"empty function, {mode}", "python", {"ns": answer["empty_ns"]}))
    return results


def child(params: dict[str, Any]) -> dict[str, Any]:
    """Return nanoseconds per call, net of the loop."""
    import stepscope

    if params["started"]:
        stepscope.init(project="bench", name="off")

    def empty(metrics: Any, step: Any = None, category: Any = None) -> None:
        return None

    names = {"stepscope": stepscope, "empty": empty, "metrics": {"loss": 0.5, "lr": 3e-4}}
    loop = _best_ns("pass", names, params)
    lines = CALLS | {"with span": WITH_SPAN}
    calls = {call: _best_ns(line, names, params) - loop for call, line in lines.items()}
    return {"calls": calls, "empty_ns": _best_ns(EMPTY, names, params) - loop}


def _best_ns(line: str, names: dict[str, Any], params: dict[str, Any]) -> float:
    loop = _compiled(line, names)
    count = params["count"]
    taken = []
    for _ in range(params["rounds"]):
        start = time.perf_counter_ns()
        loop(count)
        taken.append((time.perf_counter_ns() - start) / count)
    return min(taken)


def _compiled(line: str, names: dict[str, Any]) -> Callable[[int], None]:
    space = dict(names)
    exec(f"def loop(count):\n    for _ in range(count):\n        {line}\n", space)
    return space["loop"]  # type: ignore[no-any-return]
