"""A recording of a real training: what it logged, how long its spans took, how busy the machine was; kept small."""

import json
import lzma
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepscope.model import names
from stepscope.model.records import Event, Log, Metric, Record, Span

READINGS_EVERY_NS = 500_000_000
_LOAD, _PRESSURE = Path("/proc/loadavg"), Path("/proc/pressure/cpu")


class Tape:
    """Records like a run (`step`, `span`, `log`), in memory; a recorded tape replays the same records."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.rows: list[list[Any]] = []
        """By time: `["m", us, step, values, category?]`, `["s", us, took, step, depth, name, attrs?]`,
        `["r", us, readings]`, `["e", us, step, severity, name, attrs]` or `["l", us, step, severity, text]`."""
        self.config = config or {}
        self.truth: dict[str, Any] = {}
        """What must be found: kinds, step, window and words; empty for a healthy training."""
        self._begun = time.perf_counter_ns()
        self._step: int | None = None
        self._depth = 0
        self._read_at = -READINGS_EVERY_NS

    def _now(self) -> int:
        return (time.perf_counter_ns() - self._begun) // 1000

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """Time a step; what is logged in it belongs to it."""
        self._step = step
        self._reading()
        with self.span(names.SPAN_STEP):
            yield

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time an operation."""
        begun = self._now()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self.rows.append(["s", begun, self._now() - begun, self._step, self._depth, name])

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        """Record values at a step."""
        at = self._step if step is None else step
        self.rows.append(["m", self._now(), at, {key: float(f"{value:.6g}") for key, value in values.items()}])

    def _reading(self) -> None:
        """Read the load of the machine, twice a second."""
        now = time.perf_counter_ns()
        if now - self._read_at < READINGS_EVERY_NS or not _LOAD.exists():
            return
        self._read_at = now
        values = {"cpu/load_1m": float(_LOAD.read_text().split()[0]), "cpu/count": os.cpu_count()}
        if _PRESSURE.exists():
            values["psi/cpu"] = float(_PRESSURE.read_text().split("avg10=")[1].split()[0]) / 100
        self.rows.append(["r", self._now(), values])

    def records(self) -> Iterator[Record]:
        """Yield the records of the run, from its start to its end."""
        start = 1_700_000_000_000_000_000
        yield Event(start, None, None, None, None, 9, names.EVENT_STARTED, {"config": self.config})
        parents = _parents(self.rows)
        time = start
        for at, row in enumerate(self.rows):
            time = start + row[1] * 1000
            if row[0] == "m":
                values = {key: float(value) for key, value in row[3].items()}
                yield Metric(time, row[2], None, row[4] if len(row) > 4 else None, values)
            elif row[0] == "r":
                readings = {"psi/cpu" if key == "cpu/pressure" else key: value for key, value in row[2].items()}
                yield Metric(time, None, None, "system", readings)
            elif row[0] == "e":
                yield Event(time, row[2], None, None, None, row[3], row[4], row[5])
            elif row[0] == "l":
                yield Log(time, row[2], None, None, None, row[3], row[4])
            else:
                yield _span(time, row, at + 1, parents.get(at))
        if not any(row[0] == "e" and row[4] == names.EVENT_FINISHED for row in self.rows):
            yield Event(time + 1, None, None, None, None, 9, names.EVENT_FINISHED, {"status": "finished"})

    def packed(self) -> str:
        """The recording as one line of text."""
        return json.dumps({"config": self.config, "truth": self.truth, "rows": self.rows}, separators=(",", ":"))


def _span(time: int, row: list[Any], own: int, parent: int | None) -> Span:
    parent_id = None if parent is None else parent.to_bytes(8, "big")
    attrs = row[6] if len(row) > 6 else {}
    return Span(time, row[2] * 1000, row[3], None, b"t" * 16, own.to_bytes(8, "big"), parent_id, row[5], attrs=attrs)


def compacted(tape: Tape, *, timed: bool) -> Tape:
    """A smaller copy: times to three digits, and spans only where `timed`."""
    small = Tape(tape.config)
    small.truth = tape.truth
    for row in tape.rows:
        if row[0] == "s":
            if timed:
                small.rows.append([*row[:2], _rounded(row[2], 3), *row[3:]])
        elif row[0] == "m":
            values = {key: value if "checksum" in key else _rounded(value, 5) for key, value in row[3].items()}
            small.rows.append([*row[:3], values, *row[4:]])
        else:
            small.rows.append(row)
    return small


def _rounded(value: float, digits: int) -> float:
    number = float(f"{value:.{digits}g}")
    return int(number) if number == number and abs(number) < 1e15 and number == int(number) else number


def unpacked(line: str) -> Tape:
    """A tape from its line."""
    stored = json.loads(line)
    tape = Tape(stored["config"])
    tape.rows, tape.truth = stored["rows"], stored.get("truth", {})
    return tape


def _parents(rows: list[list[Any]]) -> dict[int, int]:
    """The id of each span's parent: the next span that ends one level further out."""
    found: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}
    for at, row in enumerate(rows):
        if row[0] != "s":
            continue
        for child in waiting.pop(row[4] + 1, []):
            found[child] = at + 1
        waiting.setdefault(row[4], []).append(at)
    return found


def save(path: Path, tapes: dict[str, Tape]) -> None:
    """Write recordings to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(name)}\t{tape.packed()}\n" for name, tape in sorted(tapes.items()))
    path.write_bytes(lzma.compress(text.encode(), preset=9))


def load(path: Path) -> dict[str, Tape]:
    """Read recordings from a file."""
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    return {json.loads(name): unpacked(tape) for name, _, tape in (line.partition("\t") for line in lines)}
