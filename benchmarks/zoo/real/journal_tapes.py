"""Turns the journal of a run into a tape."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import stepscope
from benchmarks.zoo.real.tape import Tape
from stepscope.diagnosis.record_order import in_order
from stepscope.integrations.torch import instrument, uninstrument
from stepscope.journal.layout import list_writers, writer_folder
from stepscope.journal.segments import Tail
from stepscope.model import names
from stepscope.model.records import Event, Log, Metric, Record, Span

RUN = "callbacks"
KEPT_EVENTS = {
    names.EVENT_CONFIG: None,
    names.EVENT_FINISHED: ("status",),
    names.EVENT_EXCEPTION: ("exception.type", "exception.message"),
    names.EVENT_PARAMETERS: None,
    "train.checkpoint": (),
}
"""Events on a tape, with those of their attributes that say nothing about the machine; None for all."""
PLACES = ("output_dir", "logging_dir", "run_name", "_name_or_path")
"""Settings that hold a path."""


@contextmanager
def recorded_run(tape: Tape, ended_by: tuple[type[Exception], ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield the settings for a callback, or for `stepscope.init`; afterwards the tape has what the journal has."""
    with tempfile.TemporaryDirectory() as home:
        with suppress(*ended_by):
            yield {"home": home, "run_id": RUN, "otel": False, "quiet": True, "diagnosis": False, "console": False}
        stepscope.finish()
        fill(tape, Path(home), RUN)


@contextmanager
def user_run(tape: Tape, *, watched: bool = False, **config: Any) -> Iterator[Any]:
    """Yield a run as a user starts one, with `instrument()` where `watched`; afterwards the tape has its journal."""
    with recorded_run(tape) as settings:
        run = stepscope.init(config=config, **settings)
        if watched:
            instrument()
        try:
            yield run
        finally:
            uninstrument()


def fill(tape: Tape, home: Path, run: str) -> None:
    """Put what the journals of a run hold on a tape: what was logged, spans, warnings, and how it ended."""
    batches = [batch for name in list_writers(home, run) for batch in Tail(writer_folder(home, run, name)).read()]
    records = [each.record for each in in_order(batches)]
    start = min(each.time for each in records)
    parents = {each.span_id: each.parent_id for each in records if isinstance(each, Span)}
    for record in records:
        if isinstance(record, Event) and record.name == names.EVENT_STARTED:
            tape.config = _plain(record.attrs.get("config", {}))
        else:
            tape.rows += _rows(record, (record.time - start) // 1000, parents)


def _rows(record: Record, at: int, parents: dict[bytes, bytes | None]) -> list[list[Any]]:
    """The row of a record, if it has one."""
    if isinstance(record, Metric) and record.category == "stepscope":
        return []  # counters of the recorder
    if isinstance(record, Metric):
        values = {key: float(value) for key, value in record.values.items() if isinstance(value, (int, float))}
        if record.category == "system":
            return [["r", at, values]]
        return [["m", at, record.step, values, record.category]]
    if isinstance(record, Span) and record.duration is not None:
        attrs = {names.ATTR_BUCKET: record.attrs[names.ATTR_BUCKET]} if names.ATTR_BUCKET in record.attrs else {}
        took = record.duration // 1000
        return [["s", at, took, record.step, _depth(record.span_id, parents), record.name, attrs]]
    if isinstance(record, Log) and record.severity >= 13:
        return [["l", at, record.step, record.severity, str(record.body)[:200]]]
    if isinstance(record, Event) and record.name in KEPT_EVENTS:
        kept = KEPT_EVENTS[record.name]
        attrs = {key: value for key, value in record.attrs.items() if kept is None or key in kept}
        return [["e", at, record.step, record.severity, record.name, _plain(attrs)]]
    return []


def _depth(span: bytes, parents: dict[bytes, bytes | None]) -> int:
    depth, parent = 0, parents[span]
    while parent in parents:
        depth, parent = depth + 1, parents[parent]
    return depth


def _plain(config: Any) -> Any:
    """Settings without paths."""
    if isinstance(config, dict):
        return {key: _plain(value) for key, value in config.items() if key not in PLACES}
    return config
