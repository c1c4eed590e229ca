"""The page of a report, section by section; everything that came from a run is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from stepscope.cli import text
from stepscope.cli.html.pictures import Picture
from stepscope.cli.html.svg import chart, marks
from stepscope.cli.record_lines import clock, pairs
from stepscope.cli.run_text import flatten
from stepscope.cli.step import UNUSUAL, ms
from stepscope.model import formatting
from stepscope.model.last_value import describe

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
SPANS_SHOWN = 40


def page(run: dict[str, Any], lines: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]],
         logs: Sequence[dict[str, Any]], alerts: Sequence[dict[str, Any]], pictures: Sequence[Picture],
         version: str) -> str:  # fmt: skip
    """A whole report."""
    name = f"{run['project']}/{run['name']}" if run["name"] else run["project"]
    sections = [
        _head(run, name),
        notes(run["notes"]),
        findings(run["findings"]),
        _charts(lines, run["findings"]),
        images(pictures),
        _steps(steps),
        _table("Configuration", dict(flatten(run["config"]))),
        _table("Environment", dict(flatten(run["environment"]))),
        _processes(run["writers"]),
        _records("Alerts", alerts),
        _records("Last log lines and events", logs),
    ]
    return document(name, sections, version)


def document(name: str, sections: Sequence[str], version: str) -> str:
    """A page of sections that needs nothing but itself."""
    foot = f"<p class=soft>Made by stepscope {escape(version)}. This file needs no network.</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{cleaned(name)} - stepscope</title><style>{STYLE}</style></head><body>"
        f"{''.join(sections)}{foot}</body></html>\n"
    )


def cleaned(value: Any, *, lines: bool = False) -> str:
    """Escape text for HTML, with the ends of its lines where those are wanted."""
    parts = str(value).split("\n") if lines else [str(value)]
    return "\n".join(escape(text.clean(part)) for part in parts)


def _head(run: dict[str, Any], name: str) -> str:
    started = text.moment(int((run["started"] or 0) * 1e9))
    counts = ", ".join(f"{formatting.count(count)} {kind}" for kind, count in run["counts"].items() if count)
    facts = [
        f'<b class="status-{cleaned(run["status"])}">{cleaned(run["status"])}</b>',
        f"step {formatting.ordinal(run['step'])}",
        f"{run['ranks']} rank{'s' * (run['ranks'] != 1)}",
        f"{run['attempts']} attempt{'s' * (run['attempts'] != 1)}",
        f"started {started}",
        f"lasted {formatting.duration(run['duration'])}",
        f"on {cleaned(', '.join(run['hosts']))}",
    ]
    spans = "".join(f"<span>{fact}</span>" for fact in facts)
    about = f"<p class=soft>{cleaned(run['id'])}: {cleaned(counts)}</p>"
    return f"<h1>{cleaned(name)}</h1>{about}<div class=facts>{spans}</div>"


def notes(words: str) -> str:
    """The notes of a run, as they were written."""
    return f"<p class=notes>{cleaned(words, lines=True)}</p>" if words else ""


def images(pictures: Sequence[Picture]) -> str:
    """The latest images of a run; one that is left out is named."""
    if not pictures:
        return ""
    return f"<h3>Images</h3><div class=charts>{''.join(map(_image, pictures))}</div>"


def _image(picture: Picture) -> str:
    step = "" if picture.step is None else f", step {formatting.ordinal(picture.step)}"
    name = cleaned(f"{picture.key}{step}")
    there = f'<img alt="{name}" src="{picture.address}">'
    shown = there if picture.address else "<p class=soft>Left out: too large, or no image.</p>"
    caption = f"<small class=soft>{cleaned(picture.caption)}</small>" if picture.caption else ""
    return f"<figure><figcaption><b>{name}</b></figcaption>{shown}{caption}</figure>"


def findings(found: Sequence[dict[str, Any]], level: str = "h2") -> str:
    """What went wrong, below a heading."""
    if not found:
        return f"<{level}>What went wrong</{level}><p class=soft>Nothing was found.</p>"
    items = "".join(_finding(each) for each in found)
    return f"<{level}>What went wrong</{level}><ol class=findings>{items}</ol>"


def _finding(each: dict[str, Any]) -> str:
    if each["muted"]:
        return f"<li class=muted>{cleaned(each['text'])} <i class=soft>{cleaned(each['muted'])}</i></li>"
    cause = f"Likely cause: {each['cause']}" if each["cause"] else ""
    why = ". ".join(filter(None, (each["band"], cause, each["advice"])))
    also = f"Also: {'; '.join(each['symptoms'])}." if each["symptoms"] else ""
    more = "".join(f"<div class=soft>{cleaned(words)}</div>" for words in (why, also) if words)
    return f"<li class={cleaned(each['severity'])}>{cleaned(each['text'])}{more}</li>"


def _charts(lines: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]]) -> str:
    flags: dict[str, set[int]] = {}
    for each in found:
        for key in filter(None, () if each["muted"] or each["step"] is None else (each["key"], *each["also"])):
            flags.setdefault(key, set()).add(each["step"])
    groups: dict[str, list[str]] = {}
    for line in lines:
        category = line["key"].partition("/")[0] if "/" in line["key"] else ""
        groups.setdefault(category, []).append(_figure(line, flags.get(line["key"], set())))
    parts = [
        f"<h3>{cleaned(name or 'metrics')}</h3><div class=charts>{''.join(each)}</div>" for name, each in groups.items()
    ]
    return "<h2>Metrics by step</h2>" + ("".join(parts) or "<p class=soft>No metrics with steps.</p>")


def _figure(line: dict[str, Any], flags: Iterable[int]) -> str:
    drawn = marks(line)
    ranks = f", {len(line['ranks'])} ranks" if len(line["ranks"]) > 1 else ""
    superseded = f", {line['superseded']} superseded" if line["superseded"] else ""
    caption = f"<b>{cleaned(line['key'])}</b>{_last(line)}"
    note = f"{formatting.count(line['total'])} points, {formatting.count(len(drawn))} shown{ranks}{superseded}"
    body = f"{chart(drawn, sorted(flags), line['key'], line['unit'])}<small class=soft>{note}</small>"
    return f"<figure><figcaption>{caption}</figcaption>{body}</figure>"


def _last(line: Mapping[str, Any]) -> str:
    last = line["last"]
    if last is None:
        return ""
    value = formatting.quantity(last["value"], line["key"], line["unit"])
    return f'<span title="{cleaned(describe(len(last["ranks"]), last["step"]))}">{cleaned(value)}</span>'


def _steps(views: Sequence[dict[str, Any]]) -> str:
    if not views:
        return ""
    return "<h2>Steps to look at</h2>" + "".join(_step(view) for view in views)


def _step(view: dict[str, Any]) -> str:
    values = [(metric["key"], value) for metric in view["metrics"] for value in metric["values"]]
    spans = [(lane["rank"], span) for lane in view["ranks"] for span in lane["spans"]][:SPANS_SHOWN]
    head = ("metric", ">rank", ">value", f">mean of {view['window']} before", ">change", ">sigma")
    why = f"<p>{cleaned(view['slow']['text'])}</p>" if view["slow"] else ""
    return (
        f"<details><summary>step {view['step']}, {ms(view['duration_ms'])}</summary>{why}"
        + rows(
            head, [_value(key, value) for key, value in values], [value["level"] >= UNUSUAL for _key, value in values]
        )
        + rows(
            (">rank", "span", ">took", ">usual", ">ratio"),
            [_span(*each) for each in spans],
            [span["slow"] > 0 for _, span in spans],
        )
        + "</details>"
    )


def _value(key: str, value: Mapping[str, Any]) -> list[str]:
    numbers = (formatting.number(value[field]) for field in ("value", "mean", "delta"))
    return [key, str(value["rank"]), *numbers, "" if value["z"] is None else formatting.signed(value["z"], 3)]


def _span(rank: int, span: Mapping[str, Any]) -> list[str]:
    times = (ms(span[field]) for field in ("duration_ms", "usual_ms"))
    return [str(rank), "\u2003" * span["depth"] + span["name"], *times, formatting.ratio(span["ratio"])]


def rows(head: Sequence[str], cells: Sequence[Sequence[str]], odd: Sequence[bool] = ()) -> str:
    """A table; headings that begin with `>` are of numbers."""
    if not cells:
        return ""
    kinds = [" class=n" if name.startswith(">") else "" for name in head]
    top = "".join(f"<th{kind}>{cleaned(name.lstrip('>'))}</th>" for name, kind in zip(head, kinds, strict=True))
    marked = [*odd, *([False] * len(cells))]
    body = "".join(
        f"<tr{' class=odd' if mark else ''}>"
        + "".join(f"<td{kind}>{cleaned(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row, mark in zip(cells, marked, strict=False)
    )
    return f"<div class=scroll><table><tr>{top}</tr>{body}</table></div>"


def _table(title: str, values: Mapping[str, Any]) -> str:
    cells = [[key, _inline(value)] for key, value in values.items() if value not in ("", None)]
    if not cells:
        return ""
    return f"<details open><summary><b>{cleaned(title)}</b></summary>{rows(('setting', 'value'), cells)}</details>"


def _inline(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _processes(writers: Sequence[dict[str, Any]]) -> str:
    cells = [
        [str(each["attempt"]), str(each["rank"]), each["host"], str(each["pid"]), formatting.ordinal(each["step"]),
         text.moment(int((each["started"] or 0) * 1e9))]
        for each in writers
    ]  # fmt: skip
    head = (">attempt", ">rank", "host", ">process", ">last step", "started")
    return f"<details><summary><b>Processes</b> ({len(cells)})</summary>{rows(head, cells)}</details>"


def _records(title: str, records: Sequence[dict[str, Any]]) -> str:
    if not records:
        return ""
    lines = "\n".join(_record(record) for record in reversed(records))
    return f"<h2>{cleaned(title)}</h2><pre>{lines}</pre>"


def _record(record: Mapping[str, Any]) -> str:
    step = "" if record["step"] is None else f" step {record['step']}"
    message = " ".join(str(part) for part in (record["name"], record["body"]) if part is not None)
    front = f"{clock(int((record['time'] or 0) * 1e9))} r{record['rank']}{step} {record['severity']}"
    line = f"{front} {message} {pairs(record['attrs'])}".rstrip()
    return f'<span class="{cleaned(record["severity"])}">{cleaned(line)}</span>'


STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --soft: #656d76; --paper: #ffffff; --card: #f6f8fa; --line: #d0d7de;
  --blue: #0969da; --band: #0969da33; --red: #cf222e; --amber: #9a6700; --green: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #8d96a0; --paper: #0d1117; --card: #161b22;
  --line: #30363d; --blue: #58a6ff; --band: #58a6ff40; --red: #ff7b72; --amber: #d29922; --green: #3fb950; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h3 { font-size: .95rem; margin: 1rem 0 .25rem; }
.soft { color: var(--soft); }
.facts { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; }
.status-finished, .status-running { color: var(--green); } .status-failed, .status-crashed { color: var(--red); }
ol.findings { list-style: none; padding: 0; }
ol.findings li { border-left: 4px solid var(--amber); background: var(--card); margin: .4rem 0; padding: .4rem .75rem;
  overflow-wrap: anywhere; }
ol.findings li.muted { border-color: var(--line); }
ol.findings li.ERROR, ol.findings li.FATAL { border-color: var(--red); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 360px), 1fr)); gap: .75rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .5rem .75rem; }
figcaption { display: flex; justify-content: space-between; gap: .5rem; font-size: .85rem; overflow-wrap: anywhere; }
.notes { white-space: pre-wrap; overflow-wrap: anywhere; } figure img { display: block; max-width: 100%; }
.legend i { display: inline-block; width: 1em; height: 3px; margin-right: .4em; vertical-align: middle;
  background: var(--c); }
.s0 { --c: #0969da; } .s1 { --c: #cf222e; } .s2 { --c: #1a7f37; } .s3 { --c: #9a6700; } .s4 { --c: #8250df; }
.s5 { --c: #1b7c83; } .s6 { --c: #bf3989; } .s7 { --c: #656d76; }
svg .line { fill: none; stroke: var(--c); stroke-width: 1.4; } svg .point { fill: var(--c); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 10px system-ui, sans-serif; }
svg .band { fill: var(--band); stroke: none; } svg .mean { fill: none; stroke: var(--blue); stroke-width: 1.4; }
svg .dot { fill: var(--blue); } svg .bad { stroke: var(--red); stroke-width: 1.5; } svg .flag { stroke: var(--amber);
  stroke-dasharray: 3 3; } svg .axis { stroke: var(--line); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; width: 100%; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.odd td { color: var(--red); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .75rem; overflow-x: auto;
  font: 12px/1.5 ui-monospace, SFMono-Regular, Menlo, monospace; }
pre .ERROR, pre .FATAL { color: var(--red); } pre .WARN { color: var(--amber); }
details { margin: .5rem 0; } summary { cursor: pointer; }
@media print { body { max-width: none; } details > * { display: block; } }
"""
