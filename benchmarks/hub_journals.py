"""Journals of long runs, written in bulk: the bytes that an SDK would write, laid out by numpy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer

START = 1_790_000_000 * 10**9
STEP_NS = 10**8
BATCH = 1000
"""Records in a frame: what a lively trainer logs in a second."""
SPIKE = 1e6
KEYS = ("loss", "grad_norm", "lr", "tokens_per_s", "step_ms")
PHASES = (("train.step", 0, 95), ("train.forward", 5, 30), ("train.backward", 36, 45))
"""The spans of a step: name, milliseconds from its start, and how many it lasts."""

Field = tuple[str, Any]


def write_series(home: Path, run: str, points: int) -> int:
    """Write one metric of one rank, one value in a record, with one spike in it; return the records."""
    noise = np.random.default_rng(1)
    layout = _metric(("loss",))
    with _Writing(home, run, 0, 1) as out:
        for steps in _chunks(points):
            rows = _metrics(layout, steps)
            rows["loss"] = _loss(steps, noise)
            rows["loss"][steps == points // 3] = SPIKE
            out.append(rows)
    return points


def write_metrics(home: Path, run: str, ranks: int, steps: int) -> int:
    """Write five metrics a step on each rank, in one record; return the records."""
    layout = _metric(KEYS)
    for rank in range(ranks):
        noise = np.random.default_rng(rank)
        with _Writing(home, run, rank, ranks) as out:
            for chunk in _chunks(steps):
                rows = _metrics(layout, chunk)
                rows["loss"] = _loss(chunk, noise)
                rows["grad_norm"] = noise.lognormal(0, 0.3, len(chunk))
                rows["lr"] = 3e-4 * np.minimum(1, (chunk + 1) / 2000)
                rows["tokens_per_s"] = noise.normal(9e4, 900, len(chunk))
                rows["step_ms"] = noise.normal(95, 3, len(chunk))
                out.append(rows)
    return ranks * steps


def write_spans(home: Path, run: str, ranks: int, steps: int) -> int:
    """Write the spans of each step on each rank, with one attribute; return the records."""
    for rank in range(ranks):
        noise = np.random.default_rng(100 + rank)
        with _Writing(home, run, rank, ranks, kind="spans") as out:
            for chunk in _chunks(steps, BATCH // len(PHASES) * 100):
                parts = [_spans(chunk, rank, place, noise) for place in range(len(PHASES))]
                out.append(*parts)
    return ranks * steps * len(PHASES)


class _Writing:
    """A journal being written; rows of several layouts are taken in turn."""

    def __init__(self, home: Path, run: str, rank: int, ranks: int, kind: str = "points") -> None:
        name = f"r{rank}-a1-bench-{1000 + rank}-{'ab' if kind == 'points' else 'cd'}"
        folder = home / "runs" / run / name
        writer = Writer(
            id=name, run=run, project="bench", rank=rank, world_size=ranks, host="bench", pid=1000 + rank, wall_ns=START
        )
        self._journal = Journal(folder, writer)

    def __enter__(self) -> _Writing:
        return self

    def append(self, *layouts: Any) -> None:
        """Write rows, one of each layout after another."""
        cut = [_cut(rows) for rows in layouts]
        records = [record for row in zip(*cut, strict=True) for record in row]
        for first in range(0, len(records), BATCH):
            self._journal.append(records[first : first + BATCH])

    def __exit__(self, *_: object) -> None:
        self._journal.close()


def _cut(rows: Any) -> list[bytes]:
    data, size = rows.tobytes(), rows.dtype.itemsize
    return [data[at : at + size] for at in range(0, len(data), size)]


def _chunks(steps: int, size: int = 100 * BATCH) -> Iterator[Any]:
    for first in range(0, steps, size):
        yield np.arange(first, min(steps, first + size))


def _loss(steps: Any, noise: np.random.Generator) -> Any:
    return 2 * np.exp(-steps / 1e6) + noise.normal(0, 0.05, len(steps))


def _text(text: str) -> bytes:
    return bytes([0xA0 + len(text)]) + text.encode()


def _metric(keys: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """One record: [0, time, step, nil, "trainer", {key: float, ...}]."""
    fields: list[tuple[bytes, str | None, str]] = [(b"\x96\x00\xcf", "time", ">u8"), (b"\xcf", "step", ">u8")]
    before = b"\xc0" + _text("trainer") + bytes([0x80 + len(keys)])
    for key in keys:
        fields.append((before + _text(key) + b"\xcb", key, ">f8"))
        before = b""
    return _template(fields, b"")


def _template(fields: list[tuple[bytes, str | None, str]], end: bytes) -> np.ndarray[Any, Any]:
    """One row whose constant bytes are set; the named fields are to be filled."""
    kinds: list[Field] = []
    for number, (before, name, kind) in enumerate(fields):
        kinds += [(f"_{number}", f"V{len(before)}"), (name, kind)]
    kinds += [("_end", f"V{len(end)}")] if end else []
    row = np.zeros(1, dtype=kinds)
    for number, (before, _, _) in enumerate(fields):
        row[f"_{number}"] = np.void(before)
    if end:
        row["_end"] = np.void(end)
    return row


def _metrics(layout: np.ndarray[Any, Any], steps: Any) -> Any:
    rows = layout.repeat(len(steps))
    rows["time"], rows["step"] = START + steps * STEP_NS, steps
    return rows


def _spans(steps: Any, rank: int, place: int, noise: np.random.Generator) -> Any:
    """Rows: [1, time, duration, step, nil, trace, id, parent or nil, name, 1, 0, "", {"batch": 32}]."""
    name, offset, lasts = PHASES[place]
    trace, span = b"\xc4\x10" + bytes([rank + 1]) * 8, b"\xc4\x08" + bytes([rank + 1, 0])
    fields: list[tuple[bytes, str | None, str]] = [
        (b"\x9d\x01\xcf", "time", ">u8"), (b"\xcf", "duration", ">u8"), (b"\xcf", "step", ">u8"),
        (b"\xc0" + trace, "trace", ">u8"), (span + bytes([place]) + b"\0", "id", ">u4"),
    ]  # fmt: skip
    if place:
        fields.append((span + b"\0\0", "parent", ">u4"))
    end = (b"" if place else b"\xc0") + _text(name) + b"\x01\x00\xa0\x81" + _text("batch") + b"\x20"
    rows = _template(fields, end).repeat(len(steps))
    rows["time"], rows["step"] = START + steps * STEP_NS + offset * 10**6, steps
    rows["duration"] = lasts * 10**6 + noise.integers(0, 10**6, len(steps))
    rows["trace"] = rows["id"] = steps + 1
    if place:
        rows["parent"] = steps + 1
    return rows
