"""Device tensors as the journal has them: exact for every type, never the value of a later change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ROUNDS = 200
NAN, INF = math.nan, math.inf
EXACT: dict[str, list[Any]] = {
    "bfloat16": [0.1, -3.5, 3.0e38, 1e-40, -0.0, NAN, INF, -INF],
    "float16": [0.1, -3.5, 65504.0, 6e-8, -0.0, NAN, INF, -INF],
    "float32": [0.1, -3.5, 3.4e38, 1e-45, -0.0, NAN, INF, -INF],
    "float64": [0.1, math.pi, 1.7e308, 5e-324, -0.0, NAN, INF, -INF],
    "int64": [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)],
    "int32": [0, 2**31 - 1, -(2**31)],
    "int16": [7, -(2**15)],
    "int8": [127, -128],
    "uint8": [255],
    "bool": [True, False],
}


@dataclass(frozen=True, slots=True)
class Check:
    """What became of one kind of value."""

    name: str
    logged: int
    right: int
    missing: int
    wrong: int

    @property
    def ok(self) -> bool:
        """No wrong value, and, unless it was changed in place, none missing."""
        return self.wrong == 0 and (self.missing == 0 or self.name.startswith("changed"))


def log_exact(run: Any, device: str) -> dict[str, list[Any]]:
    """Log every value of every type, fresh and as an element of a vector; return what must be found."""
    expected: dict[str, list[Any]] = {}
    for name, values in EXACT.items():
        dtype = getattr(torch, name)
        cells = torch.tensor(values, dtype=dtype)
        on_device = cells.to(device)
        key = f"exact {name}"
        expected[key] = cells.tolist()
        for index in range(len(values)):
            run.log({f"{key}/whole": cells[index].to(device), f"{key}/part": on_device[index]}, step=index)
    return expected


def check_exact(found: dict[str, dict[int, Any]], expected: dict[str, list[Any]]) -> list[Check]:
    """Hold what the journal has against what was logged."""
    checks = []
    for key, values in expected.items():
        right = missing = wrong = 0
        for part in ("whole", "part"):
            steps = found.get(f"{key}/{part}", {})
            for index, value in enumerate(values):
                if index not in steps:
                    missing += 1
                elif same(steps[index], value):
                    right += 1
                else:
                    wrong += 1
        checks.append(Check(key, 2 * len(values), right, missing, wrong))
    return checks


def same(a: Any, b: Any) -> bool:
    """Tell two numbers equal to the last bit, NaN being equal to NaN, True to 1."""
    if isinstance(b, float):
        return isinstance(a, float) and ((a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b))
    return not isinstance(a, float) and int(a) == int(b)


Change = Callable[[Any, int], object]
CHANGES: dict[str, Change] = {
    "fill_": lambda tensor, value: tensor.fill_(value),
    "copy_": lambda tensor, value: tensor.copy_(torch.full_like(tensor, value)),
    "out=": lambda tensor, value: torch.full(tensor.shape, value, out=tensor),
    "detach().fill_": lambda tensor, value: tensor.detach().fill_(value),
    "data.fill_": lambda tensor, value: tensor.data.fill_(value),
}


def log_changed(run: Any, device: str, busy: Callable[[], None]) -> Iterator[str]:
    """Log tensors and change them at once, while the device has work queued; yield each scenario's key."""
    for name, change in CHANGES.items():
        for how in ("same tensor", "new tensor", "element", "two in turn"):
            key = f"changed {name}, {how}"
            _change_loop(run, key, device, change, how, busy)
            yield key
    with torch.inference_mode():
        key = "changed fill_, inference mode"
        _change_loop(run, key, device, CHANGES["fill_"], "new tensor", busy)
        yield key


def _change_loop(run: Any, key: str, device: str, change: Change, how: str, busy: Callable[[], None]) -> None:
    """Write `step` into a tensor, log it with the number it must be found with, then spoil it."""
    pool = [torch.zeros(4, device=device) for _ in range(2)]
    scalars = [torch.zeros((), device=device) for _ in range(2)]
    for step in range(1, ROUNDS + 1):
        if step % 20 == 1:
            busy()
        if how == "same tensor":
            tensor = scalars[0]
        elif how == "two in turn":
            tensor = scalars[step % 2]
        elif how == "element":
            tensor = pool[0][step % 4]
        else:
            tensor = torch.zeros((), device=device) + step
        if how != "new tensor":
            change(tensor, step)
        run.log({f"{key}/value": tensor, f"{key}/expect": step}, step=step)
        change(tensor, -step)


def log_streams(run: Any, device: str, busy: Callable[[], None]) -> str:
    """Log tensors made on a stream of the user's own while it is current."""
    key = "other stream"
    stream = torch.cuda.Stream()
    for step in range(1, ROUNDS + 1):
        with torch.cuda.stream(stream):
            if step % 20 == 1:
                busy()
            run.log({f"{key}/value": torch.zeros((), device=device) + step, f"{key}/expect": step}, step=step)
    return key


def check_pairs(found: dict[str, dict[int, Any]], keys: list[str]) -> list[Check]:
    """See that every value in the journal is the one noted beside it."""
    checks = []
    for key in keys:
        values, expected = found.get(f"{key}/value", {}), found.get(f"{key}/expect", {})
        right = sum(1 for step, value in values.items() if value == expected.get(step) == step)
        checks.append(Check(key, ROUNDS, right, ROUNDS - len(values), len(values) - right))
    return checks


def read_back(home: Path) -> dict[str, dict[int, Any]]:
    """Read every metric of a home folder's journals: key -> step -> value."""
    from stepscope.journal import layout, segments
    from stepscope.model.records import Metric

    found: dict[str, dict[int, Any]] = {}
    for run in layout.list_runs(home):
        for writer in layout.list_writers(home, run):
            for batch in segments.read_writer(layout.writer_folder(home, run, writer)):
                for record in batch.records:
                    if isinstance(record, Metric):
                        for key, value in record.points():
                            found.setdefault(key, {})[record.step or 0] = value
    return found
