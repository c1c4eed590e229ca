"""The page of a report, section by section; everything that came from a run is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from stepscope.cli import text
from stepscope.cli.described import flatten
from stepscope.cli.html.style import STYLE
from stepscope.cli.html.svg import chart, last_value, marks
from stepscope.cli.lanes import ms
from stepscope.cli.lines import clock, pairs
from stepscope.cli.step import UNUSUAL
from stepscope.model import formatting

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
SPANS_SHOWN = 40


def page(run: dict[str, Any], lines: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]],
         logs: Sequence[dict[str, Any]], alerts: Sequence[dict[str, Any]], version: str) -> str:  # fmt: skip
    """A whole report."""
    name = f"{run['project']}/{run['name']}" if run["name"] else run["project"]
    sections = [
        _head(run, name),
        _findings(run["findings"]),
        _charts(lines, run["findings"]),
        _steps(steps),
        _table("Configuration", dict(flatten(run["config"]))),
        _table("Environment", dict(flatten(run["environment"]))),
        _processes(run["writers"]),
        _records("Alerts", alerts),
        _records("Last log lines and events", logs),
        f"<p class=soft>Made by stepscope {escape(version)}. This file needs no network.</p>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_(name)} - stepscope</title><style>{STYLE}</style></head><body>"
        f"{''.join(sections)}</body></html>\n"
    )


def _(value: Any) -> str:
    """Text that cannot be anything else."""
    return escape(text.clean(str(value)))


def _head(run: dict[str, Any], name: str) -> str:
    started = text.moment(int((run["started"] or 0) * 1e9))
    counts = ", ".join(f"{formatting.count(count)} {kind}" for kind, count in run["counts"].items() if count)
    facts = [
        f'<b class="status-{_(run["status"])}">{_(run["status"])}</b>',
        f"step {formatting.ordinal(run['step'])}",
        f"{run['ranks']} rank{'s' * (run['ranks'] != 1)}",
        f"{run['attempts']} attempt{'s' * (run['attempts'] != 1)}",
        f"started {started}",
        f"lasted {formatting.duration(run['duration'])}",
        f"on {_(', '.join(run['hosts']))}",
    ]
    spans = "".join(f"<span>{fact}</span>" for fact in facts)
    return f"<h1>{_(name)}</h1><p class=soft>{_(run['id'])}: {_(counts)}</p><div class=facts>{spans}</div>"


def _findings(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return "<h2>What went wrong</h2><p class=soft>Nothing was found.</p>"
    items = "".join(f"<li class={_(each['severity'])}>{_(each['text'])}</li>" for each in found)
    return f"<h2>What went wrong</h2><ol class=findings>{items}</ol>"


def _charts(lines: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> str:
    flags: dict[str, set[int]] = {}
    for each in found:
        for key in filter(None, (each["key"], *each["also"])):
            flags.setdefault(key, set()).add(each["step"])
    groups: dict[str, list[str]] = {}
    for line in lines:
        category = line["key"].partition("/")[0] if "/" in line["key"] else ""
        groups.setdefault(category, []).append(_figure(line, flags.get(line["key"], set())))
    parts = [f"<h3>{_(name or 'metrics')}</h3><div class=charts>{''.join(each)}</div>" for name, each in groups.items()]
    return "<h2>Metrics by step</h2>" + ("".join(parts) or "<p class=soft>No metrics with steps.</p>")


def _figure(line: dict[str, Any], flags: Iterable[int]) -> str:
    drawn = marks(line)
    ranks = f", {len(line['ranks'])} ranks" if len(line["ranks"]) > 1 else ""
    superseded = f", {line['superseded']} superseded" if line["superseded"] else ""
    caption = (
        f"<b>{_(line['key'])}</b><span>{_(formatting.quantity(last_value(line), line['key'], line['unit']))}</span>"
    )
    note = f"{formatting.count(line['total'])} points, {formatting.count(len(drawn))} shown{ranks}{superseded}"
    body = f"{chart(drawn, sorted(flags), line['key'], line['unit'])}<small class=soft>{note}</small>"
    return f"<figure><figcaption>{caption}</figcaption>{body}</figure>"


def _steps(views: Sequence[dict[str, Any]]) -> str:
    if not views:
        return ""
    return "<h2>Steps to look at</h2>" + "".join(_step(view) for view in views)


def _step(view: dict[str, Any]) -> str:
    values = [(metric["key"], value) for metric in view["metrics"] for value in metric["values"]]
    spans = [(lane["rank"], span) for lane in view["ranks"] for span in lane["spans"]][:SPANS_SHOWN]
    head = ("metric", ">rank", ">value", f">mean of {view['window']} before", ">change", ">sigma")
    why = f"<p>{_(view['slow']['text'])}</p>" if view["slow"] else ""
    return (
        f"<details><summary>step {view['step']}, {ms(view['duration_ms'])}</summary>{why}"
        + _rows(head, [_value(key, value) for key, value in values], [_unusual(value) for _key, value in values])
        + _rows((">rank", "span", ">took", ">usual", ">ratio"), [_span(*each) for each in spans], _slow(spans))
        + "</details>"
    )


def _value(key: str, value: Mapping[str, Any]) -> list[str]:
    numbers = (formatting.number(value[field]) for field in ("value", "mean", "delta"))
    return [key, str(value["rank"]), *numbers, "" if value["z"] is None else formatting.signed(value["z"], 3)]


def _span(rank: int, span: Mapping[str, Any]) -> list[str]:
    times = (ms(span[field]) for field in ("duration_ms", "usual_ms"))
    return [str(rank), "\u2003" * span["depth"] + span["name"], *times, formatting.ratio(span["ratio"])]


def _slow(spans: Sequence[tuple[int, Mapping[str, Any]]]) -> list[bool]:
    return [span["slow"] > 0 for _rank, span in spans]


def _unusual(value: Mapping[str, Any]) -> bool:
    return bool(value["level"] >= UNUSUAL)


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]], odd: Sequence[bool] = ()) -> str:
    if not rows:
        return ""
    kinds = [" class=n" if name.startswith(">") else "" for name in head]
    top = "".join(f"<th{kind}>{_(name.lstrip('>'))}</th>" for name, kind in zip(head, kinds, strict=True))
    marked = [*odd, *([False] * len(rows))]
    body = "".join(
        f"<tr{' class=odd' if mark else ''}>"
        + "".join(f"<td{kind}>{_(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row, mark in zip(rows, marked, strict=False)
    )
    return f"<div class=scroll><table><tr>{top}</tr>{body}</table></div>"


def _table(title: str, values: Mapping[str, Any]) -> str:
    rows = [[key, _inline(value)] for key, value in values.items() if value not in ("", None)]
    if not rows:
        return ""
    return f"<details open><summary><b>{_(title)}</b></summary>{_rows(('setting', 'value'), rows)}</details>"


def _inline(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _processes(writers: Sequence[dict[str, Any]]) -> str:
    rows = [
        [str(each["attempt"]), str(each["rank"]), each["host"], str(each["pid"]), formatting.ordinal(each["step"]),
         text.moment(int((each["started"] or 0) * 1e9))]
        for each in writers
    ]  # fmt: skip
    head = (">attempt", ">rank", "host", ">process", ">last step", "started")
    return f"<details><summary><b>Processes</b> ({len(rows)})</summary>{_rows(head, rows)}</details>"


def _records(title: str, records: Sequence[dict[str, Any]]) -> str:
    if not records:
        return ""
    lines = "\n".join(_record(record) for record in reversed(records))
    return f"<h2>{_(title)}</h2><pre>{lines}</pre>"


def _record(record: Mapping[str, Any]) -> str:
    step = "" if record["step"] is None else f" step {record['step']}"
    said = " ".join(str(part) for part in (record["name"], record["body"]) if part is not None)
    front = f"{clock(int((record['time'] or 0) * 1e9))} r{record['rank']}{step} {record['severity']}"
    whole = f"{front} {said} {pairs(record['attrs'])}".rstrip()
    return f'<span class="{_(record["severity"])}">{_(whole)}</span>'
