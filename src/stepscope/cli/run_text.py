"""A whole run as text: what it was, how it went, what went wrong."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.cli import rejected_keys, text
from stepscope.cli.findings import explanation, wrapped
from stepscope.cli.findings import line as finding_line
from stepscope.cli.hub_runs import described_lines
from stepscope.cli.record_lines import clock, pairs
from stepscope.journal import layout
from stepscope.journal.key_summary import KeySummary, importance
from stepscope.journal.run_summary import OnDisk, RunSummary, WriterSummary, disk_of, read_run
from stepscope.model import formatting, names
from stepscope.model.last_value import MEANING
from stepscope.model.ports import Writer
from stepscope.model.records import Event
from stepscope.model.states import writer_state

LISTED = 10
"""How many events, alerts, exceptions and open spans are printed; all are counted."""
_KEY_COLUMNS = 40


class Shown(NamedTuple):
    """A run: the summary of its records, and the state of its files and processes."""

    summary: RunSummary
    disk: Mapping[str, OnDisk]
    """The journals of the writers, before they were read."""
    now: float
    findings: Sequence[Mapping[str, Any]] = ()
    """What went wrong, as JSON, worst first."""
    time: str = ""
    """Where the time went, in a sentence."""

    def status_of(self, each: WriterSummary) -> str:
        """The state of one writer."""
        return writer_state(each.facts(self.disk.get(each.writer.id, OnDisk())), self.now)

    @property
    def status(self) -> str:
        """The state of the run."""
        return self.summary.status(self.disk, self.now)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(each.size for each in self.disk.values())

    @property
    def duration(self) -> float | None:
        """Seconds from the first start to the last record."""
        started, ended = self.summary.started, self.summary.ended
        return (ended - started) / 1e9 if started and ended else None


def look(home: Path, run: str) -> Shown:
    """Read a whole run from its journals."""
    disk = disk_of(home, run)
    return Shown(read_run(home, run), disk, time.time())


def report(shown: Shown, width: int = text.WIDTH) -> str:
    """Describe a run in at most `width` columns."""
    summary = shown.summary
    sections = [
        ("", _title(shown)),
        ("FINDINGS", [line for each in shown.findings for line in _finding(each, width - 2)]),
        ("CONFIG", _mapping(summary.config)),
        ("ENVIRONMENT", _mapping(summary.environment)),
        ("WRITERS", _writers(shown)),
        ("METRICS", _keys(summary.keys, width)),
        ("SPANS", _spans(summary)),
        ("OPEN SPANS", _open_spans(summary)),
        ("ALERTS", _alerts(summary)),
        ("EXCEPTIONS", _exceptions(summary)),
        ("EVENTS", _events(summary)),
        ("LOGS", [pairs(summary.logs)] if summary.logs else []),
        ("REJECTED", list(rejected_keys.lines(summary.rejected_keys))),
        ("OVERHEAD", _overhead(summary)),
        ("RECORDED", _counters(summary)),
    ]
    lines = [line for title, body in sections if body for line in _section(title, body)]
    return "\n".join(text.cut(line, width) for line in lines)


def _section(title: str, body: list[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in body)] if title else body


def _title(shown: Shown) -> list[str]:
    summary = shown.summary
    newest = summary.newest
    world = max((each.writer.world_size for each in newest), default=0)
    description = summary.described
    who = f"{summary.project}/{description.name}" if description.name else summary.project
    at = "" if summary.from_step is None else f" at step {summary.from_step}"
    parent = f"{summary.parent}{at}" if summary.parent else ""
    about = (("group", summary.group), ("job type", summary.job_type), ("forked from", parent))
    part = [f"{key} {value}" for key, value in about if value]
    return [
        f"{summary.run}  {text.clean(who)}  {shown.status}",
        f"started {text.moment(summary.started)}   lasted {formatting.duration(shown.duration)}"
        f"   last step {formatting.ordinal(summary.last_step)}",
        f"attempts {len(summary.attempts)}   ranks {len({each.writer.rank for each in newest})} of {world}"
        f"   records {formatting.count(sum(each.records for each in summary.writers.values()))}"
        f"   size {formatting.size(shown.size)}",
        *([f"time {shown.time}"] if shown.time else []),
        *([text.clean("   ".join(part))] if part else []),
        *described_lines(description.tags, description.notes, description.archived),
    ]


def _finding(finding: Mapping[str, Any], width: int) -> list[str]:
    expected = finding["muted"] or finding["band"]
    return [*wrapped(finding_line(finding), width), *(wrapped(explanation(expected), width) if expected else ())]


def _mapping(values: Mapping[str, Any]) -> list[str]:
    flat = {key: value for key, value in flatten(values) if value not in ("", None)}
    wide = min(max(map(len, flat), default=0), 32)
    return [text.clean(f"{key:<{wide}}  {_inline(value)}") for key, value in flat.items()]


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield nested values under dotted keys."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _inline(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(_inline, value))
    return str(value)


def _writers(shown: Shown) -> list[str]:
    head = (">ATT", ">RANK", "HOST", ">PID", "STATUS", "STARTED", ">LASTED", ">STEP", ">RECORDS", ">DAMAGED")
    writers = list(shown.summary.writers.values())
    began = _starters(writers)
    rows = [_writer(each, shown.status_of(each), _part(each.writer, began)) for each in writers]
    return text.table(head, rows, limits={"HOST": 18})


def _starters(writers: Iterable[WriterSummary]) -> dict[tuple[int, str], str]:
    """The first writer of each call of `init`: the process that called it."""
    found: dict[tuple[int, str], str] = {}
    for each in sorted(writers, key=lambda each: (not each.writer.main, each.writer.wall_ns)):
        found.setdefault(_start(each.writer), each.writer.id)
    return found


def _start(who: Writer) -> tuple[int, str]:
    name = layout.parse_writer(who.id)
    return who.rank, name.start if name is not None else who.id


def _part(who: Writer, began: Mapping[tuple[int, str], str]) -> str:
    """The kind of a process: the rank's own, one that joined by calling `init` itself, or a fork of either."""
    if who.main:
        return str(who.rank)
    return f"{who.rank} {'joined' if began[_start(who)] == who.id else 'fork'}"


def _writer(each: WriterSummary, status: str, part: str) -> list[str]:
    who, started = each.writer, each.started
    return [
        str(who.attempt),
        part,
        who.host,
        str(who.pid),
        status,
        text.moment(started),
        formatting.duration((each.last - started) / 1e9 if started and each.last else None),
        formatting.ordinal(each.last_step),
        str(each.records),
        str(each.damaged + each.unreadable or "-"),
    ]


def _keys(keys: Mapping[str, KeySummary], width: int) -> list[str]:
    """A row per key, with a sparkline of the leading keys where there is room."""
    if not keys:
        return []
    ordered = sorted(keys.values(), key=lambda each: (importance(each.key), each.key))
    head = ("KEY", ">COUNT", ">LAST", ">MIN", ">MAX", ">NAN/INF")
    lines = text.table(head, [_key(each) for each in ordered], limits={"KEY": _KEY_COLUMNS})
    start = max(map(len, lines)) + 2
    columns = min(width - start - 2, 32)
    rows = [
        f"{line:<{start}}{text.spark(each.curve.points, columns)}" if each.curve and columns > 7 else line
        for line, each in zip(lines[1:], ordered, strict=True)
    ]
    several = any(len(each.latest.by_rank) > 1 for each in ordered)
    return [lines[0], *rows, *([f"LAST is {MEANING}"] if several else [])]


def _key(each: KeySummary) -> list[str]:
    numbers = (text.value_of(each.key, value) for value in (each.last, each.low, each.high))
    return [each.key, str(each.count), *numbers, f"!{each.non_finite}" if each.non_finite else ""]


def _spans(summary: RunSummary) -> list[str]:
    rows = [
        [
            each.name,
            str(each.count),
            *(formatting.duration(ns / 1e9) for ns in (each.mean, each.p50, each.longest)),
            str(each.errors or ""),
        ]
        for each in sorted(summary.spans.values(), key=lambda each: -sum(each.durations))
    ]
    head = ("NAME", ">COUNT", ">MEAN", ">P50", ">MAX", ">ERRORS")
    return text.table(head, rows, limits={"NAME": _KEY_COLUMNS}) if rows else []


def _open_spans(summary: RunSummary) -> list[str]:
    spans = sorted(summary.open_spans.values(), key=lambda each: each[1].time)
    return _listed(
        [f"{clock(span.time)} r{who.rank} {span.name} {_at(span.step)} {pairs(span.attrs)}" for who, span in spans],
        len(spans),
    )


def _alerts(summary: RunSummary) -> list[str]:
    lines = [
        f"{clock(alert.time)} {names.severity_word(alert.severity):<5} {alert.name} {_at(alert.step)} {alert.message}"
        for alert in summary.recent_alerts
    ]
    return _listed(lines, summary.alerts.total())


def _exceptions(summary: RunSummary) -> list[str]:
    lines = [
        f"{clock(event.time)} {event.attrs.get('exception.type', '')} {_at(event.step)}"
        f" {event.attrs.get('exception.message', '')}"
        for event in summary.exceptions
    ]
    return _listed(lines, summary.events[names.EVENT_EXCEPTION])


def _events(summary: RunSummary) -> list[str]:
    return _listed([_event(event) for event in summary.recent_events], _other_events(summary))


def _event(event: Event) -> str:
    return f"{clock(event.time)} {event.name} {_at(event.step)} {pairs(event.attrs)}"


def _other_events(summary: RunSummary) -> int:
    shown_elsewhere = (names.EVENT_STARTED, names.EVENT_FINISHED, names.EVENT_EXCEPTION)
    return sum(count for name, count in summary.events.items() if name not in shown_elsewhere)


def _overhead(summary: RunSummary) -> list[str]:
    """What Stepscope took of the last seconds of each process, by part; of several processes the most."""
    most: dict[str, float] = {}
    for each in summary.newest:
        for key, share in each.counters.items():
            if key.startswith(names.OVERHEAD) and isinstance(share, (int, float)):
                most[key] = max(float(share), most.get(key, 0.0))
    total = most.pop(f"{names.OVERHEAD}total", None)
    parts = [f"{key.removeprefix(names.OVERHEAD)} {100 * share:.2f} %" for key, share in sorted(most.items())]
    return [] if total is None else [f"{100 * total:.2f} % of the time: {', '.join(parts)}"]


def _counters(summary: RunSummary) -> list[str]:
    counters = {key: value for key, value in sorted(summary.counters.items()) if value}
    return [f"{key:<32}  {formatting.number(value)}" for key, value in counters.items()]


def _at(step: int | None) -> str:
    return "" if step is None else f"step {step}"


def _listed(lines: list[str], total: int) -> list[str]:
    """The last lines, and how many there are in all."""
    last = [" ".join(text.clean(line).split()) for line in lines[-LISTED:]]
    return [f"the last {len(last)} of {total}:", *last] if total > len(last) else last
