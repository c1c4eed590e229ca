"""The page of a report over several runs: what differs, charts with a line for each run, findings, notes and images."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepscope.cli import text
from stepscope.cli.html.pictures import Picture
from stepscope.cli.html.report_page import cleaned, document, findings, images, notes, rows
from stepscope.cli.html.svg import LINES, marks, overlay
from stepscope.cli.run_text import flatten
from stepscope.model import formatting
from stepscope.model.point_fields import GPU_FIELDS

SETTINGS_SHOWN = 100


class Compared(NamedTuple):
    """A run of the report: what the hub says about it, its lines by key, and its images."""

    about: dict[str, Any]
    lines: Mapping[str, dict[str, Any]]
    pictures: Sequence[Picture]

    @property
    def name(self) -> str:
        """Its name, or its id."""
        return str(self.about["name"] or self.about["id"])


def page(runs: Sequence[Compared], version: str) -> str:
    """A whole report."""
    keys = list(dict.fromkeys(key for run in runs for key in run.lines))
    figures = "".join(_figure(key, runs) for key in keys)
    sections = [
        f"<h1>{len(runs)} runs</h1>",
        _facts(runs),
        _settings(runs),
        f"<h2>Metrics by step</h2>{_legend(runs)}<div class=charts>{figures}</div>",
        *(_run(run) for run in runs),
    ]
    return document(f"{len(runs)} runs", sections, version)


def _legend(runs: Sequence[Compared]) -> str:
    items = [f"<span><i class=s{at % LINES}></i>{cleaned(run.name)}</span>" for at, run in enumerate(runs)]
    return f"<div class='facts legend'>{''.join(items)}</div>"


def _figure(key: str, runs: Sequence[Compared]) -> str:
    having = {at: run.lines[key] for at, run in enumerate(runs) if key in run.lines}
    drawn = {at: marks(line) for at, line in having.items()}
    unit = next(iter(having.values()))["unit"]
    total = sum(line["total"] for line in having.values())
    shown = sum(map(len, drawn.values()))
    note = f"{formatting.count(total)} points, {formatting.count(shown)} shown, {len(having)} of {len(runs)} runs"
    body = f"{overlay(drawn, key, unit)}<small class=soft>{note}</small>"
    return f"<figure><figcaption><b>{cleaned(key)}</b></figcaption>{body}</figure>"


def _facts(runs: Sequence[Compared]) -> str:
    known = [field for field in GPU_FIELDS if any(field in run.about["columns"] for run in runs)]
    head = ("run", "status", ">step", ">lasted", "started", ">findings", *(f">{field}" for field in known))
    return rows(head, [_row(run, known) for run in runs])


def _row(run: Compared, known: Sequence[str]) -> list[str]:
    about = run.about
    used = [formatting.number(about["columns"].get(field, {}).get("value")) for field in known]
    return [
        run.name,
        about["status"],
        formatting.ordinal(about["step"]),
        formatting.duration(about["duration"]),
        text.moment(int((about["started"] or 0) * 1e9)),
        str(sum(not each["muted"] for each in about["findings"])),
        *used,
    ]


def _settings(runs: Sequence[Compared]) -> str:
    """The settings that differ between the runs."""
    flat = [dict(flatten(run.about["config"])) for run in runs]
    names = dict.fromkeys(name for each in flat for name in each)
    differing = [name for name in names if len({str(each.get(name)) for each in flat}) > 1]
    if not differing:
        return "<h2>Settings that differ</h2><p class=soft>None.</p>"
    cells = [[name, *(str(each.get(name, formatting.MISSING)) for each in flat)] for name in differing[:SETTINGS_SHOWN]]
    more = len(differing) - SETTINGS_SHOWN
    left = f"<p class=soft>{more} more settings differ.</p>" if more > 0 else ""
    return f"<h2>Settings that differ</h2>{rows(('setting', *(run.name for run in runs)), cells)}{left}"


def _run(run: Compared) -> str:
    parts = (notes(run.about["notes"]), findings(run.about["findings"], "h3"), images(run.pictures))
    return f"<h2>{cleaned(run.name)}</h2><p class=soft>{cleaned(run.about['id'])}</p>{''.join(parts)}"
