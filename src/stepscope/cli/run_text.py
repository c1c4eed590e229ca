"""A whole run as text: what it was, how it went, what went wrong."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from stepscope.cli import text
from stepscope.cli.findings import explanation, wrapped
from stepscope.cli.findings import line as finding_line
from stepscope.cli.record_lines import clock, pairs
from stepscope.cli.run_document import (
    LISTED_ELSEWHERE,
    Counted,
    KeyPart,
    OpenSpan,
    RunDocument,
    RunLook,
    SpanPart,
    WriterPart,
)
from stepscope.journal import layout
from stepscope.journal.key_summary import importance
from stepscope.model import formatting, names
from stepscope.model.last_value import MEANING
from stepscope.model.run_description import tag_text

LISTED = 10
"""How many events, alerts, exceptions and open spans are printed; all are counted."""
_KEY_COLUMNS = 40
_CALLS = {
    "string": "run.event({key}, {{'text': value}}) keeps a text; run.log takes numbers",
    "none": "log it only where there is a value: if value is not None: run.log({{{key}: value}})",
    "vector": "run.log({{{key}: value.mean()}}), or each element under a key of its own",
    "complex": "run.log({{{key}: {{'real': value.real, 'imag': value.imag}}}})",
    "too large": "run.log({{{key}: math.log10(value)}}); a value must fit a 64-bit float",
    "too deep": "run.log({{{key}: number}}); nest fewer dicts",
    "too many dicts": "run.log({{{key}: number}}); log fewer keys in one call",
    "unknown argument": "leave it out, or put it into the values: run.log({{...}}, step=step, category=category)",
    "step is out of range": "run.log(values, step=step) takes 64-bit integers",
    "inside a graph being captured": "log it after the captured region",
}
"""The call by the reason of the rejection."""
_BEGINNINGS = {
    "step must be an integer": "run.log(values, step=int(step))",
    "type ": "run.log({{{key}: float(value)}}), or run.event({key}, {{'value': str(value)}})",
    "on device meta": "log it once it has a value",
}


def report(look: RunLook, width: int = text.WIDTH) -> str:
    """Describe a run in at most `width` columns."""
    run = look.document
    sections = [
        ("", _title(look)),
        ("FINDINGS", [line for each in run.findings for line in _finding(each, width - 2)]),
        ("CONFIG", _mapping(run.config)),
        ("ENVIRONMENT", _mapping(run.environment)),
        ("WRITERS", _writers(run.writers)),
        ("METRICS", _keys(look, width)),
        ("SPANS", _spans(run.spans)),
        ("OPEN SPANS", _open_spans(run.open_spans)),
        ("ALERTS", _alerts(run.alerts)),
        ("EXCEPTIONS", _exceptions(run)),
        ("EVENTS", _events(run.events)),
        ("LOGS", [pairs(run.logs)] if run.logs else []),
        ("REJECTED", list(_rejected(look.rejected))),
        ("OVERHEAD", _overhead(look.overhead)),
        ("RECORDED", _counters(run.counters)),
    ]
    lines = [line for title, body in sections if body for line in _section(title, body)]
    return "\n".join(text.cut(line, width) for line in lines)


def _section(title: str, body: list[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in body)] if title else body


def _title(look: RunLook) -> list[str]:
    run = look.document
    newest = [each for each in run.writers if each.attempt == max(run.attempts)]
    present = [each for each in newest if each.main] or newest
    world = max((each.world_size for each in present), default=0)
    records = [each.records for each in run.writers if each.records is not None]
    who = f"{run.project}/{run.name}" if run.name else run.project
    at = "" if run.from_step is None else f" at step {run.from_step}"
    parent = f"{run.parent}{at}" if run.parent else ""
    about = (("group", run.group), ("job type", run.job_type), ("forked from", parent))
    part = [f"{key} {value}" for key, value in about if value]
    share = "" if look.imported is None else f" {look.imported:.0%}"
    return [
        f"{run.run}  {text.clean(who)}  {run.status}{share}",
        f"started {text.moment(_ns(run.started))}   lasted {formatting.duration(run.duration_seconds)}"
        f"   last step {formatting.ordinal(run.last_step)}",
        f"attempts {len(run.attempts)}   ranks {len({each.rank for each in present})} of {world}"
        f"{f'   records {formatting.count(sum(records))}' if records else ''}   size {formatting.size(run.size)}",
        *([f"time {look.time}"] if look.time else []),
        *([text.clean("   ".join(part))] if part else []),
        *_described(run),
    ]


def _described(run: RunDocument) -> Iterator[str]:
    if run.archived:
        yield "archived"
    if run.tags:
        yield text.clean(f"tags {', '.join(tag_text(*tag) for tag in run.tags.items())}")
    if run.notes:
        yield text.clean(f"notes {run.notes}")


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


def _writers(writers: Sequence[WriterPart]) -> list[str]:
    head = (">ATT", ">RANK", "HOST", ">PID", "STATUS", "STARTED", ">LASTED", ">STEP", ">RECORDS", ">DAMAGED")
    began: dict[tuple[int, str], str] = {}
    """The first writer of each call of `init`: the process that called it."""
    for each in sorted(writers, key=lambda each: (not each.main, each.started or "")):
        began.setdefault(_start(each), each.id)
    return text.table(head, [_writer(each, began) for each in writers], limits={"HOST": 18}) if writers else []


def _start(each: WriterPart) -> tuple[int, str]:
    name = layout.parse_writer(each.id)
    return each.rank, name.start if name is not None else each.id


def _writer(each: WriterPart, began: Mapping[tuple[int, str], str]) -> list[str]:
    kind = "" if each.main else " joined" if began[_start(each)] == each.id else " fork"
    started, ended = _ns(each.started), _ns(each.ended)
    return [
        str(each.attempt),
        f"{each.rank}{kind}",
        each.host,
        str(each.pid),
        each.status,
        text.moment(started),
        formatting.duration((ended - started) / 1e9 if started and ended else None),
        formatting.ordinal(each.last_step),
        formatting.MISSING if each.records is None else str(each.records),
        str((each.damaged_frames or 0) + (each.unreadable_records or 0) or "-"),
    ]


def _keys(look: RunLook, width: int) -> list[str]:
    """A row per key, with a sparkline of the leading keys where there is room."""
    ordered = sorted(look.document.keys.items(), key=lambda each: (importance(each[0]), each[0]))
    if not ordered:
        return []
    head = ("KEY", ">COUNT", ">LAST", ">MIN", ">MAX", ">NAN/INF")
    rows = [_key(key, each, look.units.get(key, "")) for key, each in ordered]
    lines = text.table(head, rows, limits={"KEY": _KEY_COLUMNS})
    start = max(map(len, lines)) + 2
    columns = min(width - start - 2, 32)
    drawn = [
        f"{line:<{start}}{text.spark(look.curves[key], columns)}" if key in look.curves and columns > 7 else line
        for line, (key, _) in zip(lines[1:], ordered, strict=True)
    ]
    return [lines[0], *drawn, *([f"LAST is {MEANING}"] if look.several else [])]


def _key(key: str, each: KeyPart, unit: str) -> list[str]:
    numbers = (text.value_of(key, value, unit) for value in (each.last, each.min, each.max))
    return [key, str(each.count), *numbers, f"!{each.non_finite}" if each.non_finite else ""]


def _spans(spans: Mapping[str, SpanPart]) -> list[str]:
    rows = [
        [
            name,
            str(each.count),
            *(formatting.duration(took) for took in (each.mean_seconds, each.p50_seconds, each.max_seconds)),
            str(each.errors or ""),
        ]
        for name, each in sorted(spans.items(), key=lambda each: -each[1].count * each[1].mean_seconds)
    ]
    head = ("NAME", ">COUNT", ">MEAN", ">P50", ">MAX", ">ERRORS")
    return text.table(head, rows, limits={"NAME": _KEY_COLUMNS}) if rows else []


def _open_spans(spans: Sequence[OpenSpan]) -> list[str]:
    oldest = sorted(spans, key=lambda each: each.started or "")
    return _listed(
        [
            f"{clock(_ns(each.started))} r{each.rank} {each.name} {_at(each.step)} {pairs(each.attrs)}"
            for each in oldest
        ],
        len(oldest),
    )


def _alerts(alerts: Counted) -> list[str]:
    lines = [
        f"{clock(_ns(each.time))} {each.severity:<5} {each.name} {_at(each.step)} {each.body}" for each in alerts.recent
    ]
    return _listed(lines, sum(alerts.counts.values()))


def _exceptions(run: RunDocument) -> list[str]:
    lines = [
        f"{clock(_ns(each.time))} {each.attrs.get('exception.type', '')} {_at(each.step)}"
        f" {each.attrs.get('exception.message', '')}"
        for each in run.exceptions
    ]
    return _listed(lines, run.events.counts.get(names.EVENT_EXCEPTION, 0))


def _events(events: Counted) -> list[str]:
    lines = [f"{clock(_ns(each.time))} {each.name} {_at(each.step)} {pairs(each.attrs)}" for each in events.recent]
    return _listed(lines, sum(count for name, count in events.counts.items() if name not in LISTED_ELSEWHERE))


def _rejected(rejected: Mapping[str, str]) -> Iterator[str]:
    """For each key its reason, and below it the call that would record it."""
    for key, reason in rejected.items():
        yield text.clean(f"{key!r}: {reason}")
        call = _CALLS.get(reason) or next((call for start, call in _BEGINNINGS.items() if reason.startswith(start)), "")
        if call:
            yield text.clean(f"  {call.format(key=repr(key))}")


def _overhead(shares: Mapping[str, float]) -> list[str]:
    parts = {key.removeprefix(names.OVERHEAD): f"{100 * share:.2f} %" for key, share in sorted(shares.items())}
    total = parts.pop("total", None)
    return [] if total is None else [f"{total} of the time: {', '.join(map(' '.join, parts.items()))}"]


def _counters(counters: Mapping[str, Any]) -> list[str]:
    return [f"{key:<32}  {formatting.number(value)}" for key, value in sorted(counters.items()) if value]


def _at(step: int | None) -> str:
    return "" if step is None else f"step {step}"


def _ns(moment: str | None) -> int:
    """A time of the document; 0 for none."""
    return 0 if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1e6) * 1000


def _listed(lines: list[str], total: int) -> list[str]:
    """The last lines, and how many there are in all."""
    last = [" ".join(text.clean(line).split()) for line in lines[-LISTED:]]
    return [f"the last {len(last)} of {total}:", *last] if total > len(last) else last
