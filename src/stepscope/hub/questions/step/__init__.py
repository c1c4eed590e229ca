"""The step inspector: everything that happened at one step of a run, on all ranks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import Any, get_args

from stepscope.alerts.alert import unexpected
from stepscope.diagnosis.finding import SEVERITIES, Finding
from stepscope.diagnosis.findings_json import concerns, slow_finding
from stepscope.diagnosis.registry import KINDS
from stepscope.hub.questions.logs import RECORD, record_json
from stepscope.hub.questions.step.rank_pages import RankPage
from stepscope.hub.questions.step.step_sql import (
    WINDOW,
    Anomaly,
    Reading,
    Reason,
    StepValue,
    StepView,
    nearest_anomalies,
    read_step,
    sample_counts,
)
from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Reader
from stepscope.hub.questions.toolbox.params import (
    ATTRS,
    BOOLEAN,
    COUNTS,
    INTEGER,
    MS,
    NUMBER,
    SECONDS,
    STEP,
    TEXT,
    Param,
    list_of,
    map_of,
    milliseconds,
    not_found,
    nullable,
    object_of,
    seconds,
)
from stepscope.hub.questions.traces import NODE_FIELDS, Node, build_trees, mark_critical, node_json, walk
from stepscope.hub.questions.traces.stored_spans import SPAN_FIELDS, RankSpans, SpanRow, span_json
from stepscope.hub.store.read.finding_catalog import read_findings
from stepscope.model import names
from stepscope.wire.plain import plain, word

MAX_NAMES = 50
"""Names of spans in the summary: those that took longest."""


def step_json(view: StepView, run: str, found: Sequence[Finding]) -> dict[str, Any]:
    """Everything about a step; offsets count from `begin`. Refused when the given attempt did not reach it.

    `found` are the findings of the run without those marked as expected.
    """
    if view.attempts and view.attempt not in view.attempts:
        came = f"attempt{'s' * (len(view.attempts) > 1)} {', '.join(map(str, view.attempts))}"
        text = f"attempt {view.attempt} did not reach step {view.step}; {came} did"
        raise not_found(text)
    made: dict[str, Any] = {
        "run": run,
        "step": view.step,
        "attempt": view.attempt,
        "attempts": view.attempts,
        "begin": seconds(view.begin),
        "end": seconds(view.end),
        "duration_ms": milliseconds(view.duration),
        "previous": view.previous,
        "next": view.following,
        "metrics": metrics(view.values),
        "ranks": ranks(view.spans, view.usual, run, view.begin, view.last_rank),
        "slow": slow_step(view, found),
        "open_spans": [span_json(row, run, view.begin) for row in view.open],
        "usual_ms": {name: milliseconds(median) for name, median in sorted(view.usual.items())},
        "logs": [record_json(row, run) for row in view.logs],
        "alerts": [record_json(row, run) for row in view.alerts],
        "system": [_reading(reading) for reading in view.system],
    }
    return {**made, "findings": step_findings(view, found, made["alerts"], made["ranks"])}


def metrics(values: Iterable[StepValue]) -> list[dict[str, Any]]:
    """The values of a step by key, one entry for each rank (and each set of attributes)."""
    by_key: dict[str, list[StepValue]] = {}
    for value in values:
        by_key.setdefault(value.series.key, []).append(value)
    return [
        {"key": key, "unit": group[0].series.unit, "values": [_value(value) for value in group]}
        for key, group in by_key.items()
    ]


def _value(value: StepValue) -> dict[str, Any]:
    delta, z, level = value.against()
    return {
        "rank": value.series.rank,
        "attempt": value.attempt,
        "attrs": plain(value.series.attrs),
        "scope": value.series.scope,
        "time": seconds(value.time),
        "value": word(value.value),
        "logged": value.logged,
        "mean": word(value.mean) if value.before else None,
        "std": word(value.std) if value.before else None,
        "before": value.before,
        "delta": None if delta is None else word(delta),
        "z": z,
        "level": level,
    }


def ranks(
    spans: Sequence[SpanRow], usual: Mapping[str, float], run: str, begin: int, last: int | None
) -> list[dict[str, Any]]:
    """The span trees of each rank, flat: parents first, with depth; the rank that ended last is critical."""
    by_rank: dict[int, list[SpanRow]] = {}
    for row in spans:
        by_rank.setdefault(row.rank, []).append(row)
    grown = {rank: build_trees(rows) for rank, rows in sorted(by_rank.items())}
    return [_rank(rank, roots, usual, run, begin, critical=rank == last) for rank, roots in grown.items()]


def _rank(
    rank: int, roots: list[Node], usual: Mapping[str, float], run: str, begin: int, *, critical: bool
) -> dict[str, Any]:
    for root in roots:
        mark_critical(root)
    nodes = walk(roots)
    first, last = min(node.begin for node in nodes), max(node.end for node in nodes)
    path = sorted((node for node in nodes if node.critical), key=lambda node: (node.begin, node.depth))
    return {
        "rank": rank,
        "critical": critical,
        "offset_ms": milliseconds(first - begin),
        "duration_ms": milliseconds(last - first),
        "errors": sum(node.row.span.status == 2 for node in nodes),
        "critical_path": [node.row.span.span_id.hex() for node in path],
        "spans": [node_json(node, usual, run, begin) for node in nodes],
    }


def summary(outline: Iterable[RankSpans], usual: Mapping[str, float]) -> list[dict[str, Any]]:
    """The time that the spans of each name took on the fastest, the median and the slowest rank, longest first."""
    by_name: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for each in outline:
        by_name[each.name][each.rank] += each.spent
    longest = sorted(by_name.items(), key=lambda item: (-max(item[1].values()), item[0]))
    return [_summed(name, spent, usual) for name, spent in longest[:MAX_NAMES]]


def _summed(name: str, spent: Mapping[int, int], usual: Mapping[str, float]) -> dict[str, Any]:
    fastest = min(spent, key=lambda rank: (spent[rank], rank))
    slowest = min(spent, key=lambda rank: (-spent[rank], rank))
    return {
        "name": name,
        "ranks": len(spent),
        "usual_ms": milliseconds(usual.get(name)),
        "min_ms": milliseconds(spent[fastest]),
        "min_rank": fastest,
        "median_ms": milliseconds(median_low(spent.values())),
        "max_ms": milliseconds(spent[slowest]),
        "max_rank": slowest,
    }


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "key": reading.series.key,
        "rank": reading.series.rank,
        "unit": reading.series.unit,
        "attrs": plain(reading.series.attrs),
        "time": seconds(reading.time),
        "value": word(reading.value),
        "min": word(reading.low),
        "max": word(reading.high),
        "points": reading.points,
    }


def inspect(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/runs/{run}/steps/{step}`."""
    run, step = reader.number(given["run"]), given["step"]
    share = reader.diagnosed(given["run"])
    before, after = nearest_anomalies(reader.engine, run, step)
    found, marks = read_findings(reader.engine, run), reader.marks
    if found and marks:
        found = unexpected(found, given["run"], reader.recorded(given["run"]).project, marks)
    page = _page(given, found)
    view = read_step(reader.engine, run, step, window=given["window"], attempt=given["attempt"], page=page)
    beyond = None if page is None else page.offset + page.limit
    return {
        **step_json(view, given["run"], found),
        "all_ranks": {
            "count": view.ranks,
            "next": beyond if beyond is not None and beyond < view.ranks else None,
            "spans": summary(view.outline, view.usual),
        },
        "samples": sample_counts(reader.engine, run, step, given["attempt"]),
        "complete": share >= 1.0,
        "window": given["window"],
        "previous_anomaly": _place(before),
        "next_anomaly": _place(after),
    }


def _page(given: Mapping[str, Any], found: Sequence[Finding]) -> RankPage | None:
    """The page of ranks that is asked for: first the rank that is named, then some that findings name."""
    limit, step, attempt = given["limit"], given["step"], given["attempt"]
    if limit is None:
        return None
    named = () if given["rank"] is None else (given["rank"],)
    at_fault = [rank for each in found if concerns(each, step, attempt or each.attempt) for rank in each.ranks]
    return RankPage(limit, given["offset"], (*named, *at_fault[: limit // 2]))


def _place(found: Anomaly | None) -> dict[str, Any] | None:
    return None if found is None else {"step": found.step, "reason": found.reason, "attempt": found.attempt}


_RECORDED = frozenset(("alert", "error"))
"""Kinds of findings that are also among the records of the step."""
MAX_ALERTS, MAX_ERRORS = 20, 20


def step_findings(
    view: StepView, found: Sequence[Finding], alerts: Sequence[Mapping[str, Any]], lanes: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The findings of a run that concern a step, its alerts and its failed spans; the last two are given as JSON."""
    named = [
        _finding(each.kind, each.severity, each.text, each.ranks)
        for each in found
        if each.kind not in _RECORDED and concerns(each, view.step, view.attempt)
    ]
    return [*named, *_alerts(alerts), *_errors(lanes)]


def slow_step(view: StepView, found: Sequence[Finding]) -> dict[str, Any] | None:
    """Where the time of a step went, with the spans to blame: of the ranks at fault, those with most self time."""
    finding = slow_finding(list(found), view.step, view.attempt)
    if finding is None:
        return None
    worst: dict[int, Node] = {}
    for node in walk(build_trees(view.spans)):
        rank = node.row.rank
        if node.row.span.name == finding.span and (not finding.ranks or rank in finding.ranks):
            worst[rank] = max(worst.get(rank, node), node, key=lambda each: each.self_time)
    ids = [node.row.span.span_id.hex() for _, node in sorted(worst.items())]
    alone = finding.ranks[0] if len(finding.ranks) == 1 else None
    return {"text": finding.text, "span": finding.span, "rank": alone, "span_ids": ids}


def _finding(kind: str, severity: str, text: str, ranks: Sequence[int]) -> dict[str, Any]:
    return {"kind": kind, "severity": severity, "text": text, "rank": ranks[0] if len(ranks) == 1 else None}


def _alerts(alerts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One sentence for the alerts of a name, with the message of the most severe."""
    named: dict[str, list[Mapping[str, Any]]] = {}
    for alert in alerts:
        named.setdefault(alert["name"], []).append(alert)
    return [_alert(name, each) for name, each in list(named.items())[:MAX_ALERTS]]


def _alert(name: str, alerts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst = max(alerts, key=lambda alert: alert["severity_number"])
    ranks = sorted({alert["rank"] for alert in alerts})
    severity = "ERROR" if worst["severity_number"] >= names.SEVERITIES["ERROR"] else "WARN"
    where = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    message = f": {worst['body']}" if worst["body"] else ""
    return _finding("alert", severity, f"{name} on {where}{message}", ranks)


def _errors(lanes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    failed = [(lane["rank"], span) for lane in lanes for span in lane["spans"] if span["status"] == "error"]
    return [
        _finding("error", "ERROR", f"{span['name']} failed on rank {rank}{_after(span['message'])}", (rank,))
        for rank, span in failed[:MAX_ERRORS]
    ]


def _after(message: str) -> str:
    return f": {message}" if message else ""


_LEVEL = {"type": "integer", "description": "How unusual: 0 usual, 1 notable, 2 unusual, 3 extreme or not finite."}
_FINDING = object_of(
    kind={"type": "string", "examples": list(KINDS)},
    severity={"type": "string", "enum": list(reversed(SEVERITIES))},
    text=TEXT,
    rank=nullable(INTEGER),
)
_VALUE = object_of(
    rank=INTEGER, attempt=INTEGER, attrs=ATTRS, scope=TEXT, time=SECONDS, value=NUMBER, logged=INTEGER,
    mean=nullable(NUMBER),
    std=nullable(NUMBER), before=INTEGER, delta=nullable(NUMBER), z={"type": ["number", "null"]}, level=_LEVEL,
)  # fmt: skip
_RANK = object_of(
    rank=INTEGER, critical=BOOLEAN, offset_ms=MS, duration_ms=MS, errors=INTEGER, critical_path=list_of(TEXT),
    spans=list_of(object_of(**NODE_FIELDS)),
)  # fmt: skip
_READING = object_of(
    key=TEXT, rank=INTEGER, unit=TEXT, attrs=ATTRS, time=SECONDS, value=NUMBER, min=NUMBER, max=NUMBER, points=INTEGER,
)  # fmt: skip
_ANOMALY = nullable(object_of(step=INTEGER, reason={"type": "string", "enum": list(get_args(Reason))}, attempt=INTEGER))

_SUMMED = object_of(
    name=TEXT, ranks=INTEGER, usual_ms=MS, min_ms=MS, min_rank=INTEGER, median_ms=MS, max_ms=MS, max_rank=INTEGER,
)  # fmt: skip
ALL_RANKS = object_of(
    count=INTEGER,
    next=nullable({"type": "integer", "description": "The `offset` of the next page; null after the last."}),
    spans=list_of(_SUMMED),
)

ENDPOINTS = (
    Endpoint(
        "/api/runs/{run}/steps/{step}",
        "inspectStep",
        "Everything about one step: values compared with earlier steps, span trees, logs, alerts, system metrics.",
        inspect,
        object_of(
            run=TEXT,
            step=INTEGER,
            attempt=INTEGER,
            attempts=list_of(INTEGER),
            begin=SECONDS,
            end=SECONDS,
            duration_ms=MS,
            previous=STEP,
            next=STEP,
            metrics=list_of(object_of(key=TEXT, unit=TEXT, values=list_of(_VALUE))),
            ranks=list_of(_RANK),
            all_ranks=ALL_RANKS,
            slow=nullable(object_of(text=TEXT, span=TEXT, rank=nullable(INTEGER), span_ids=list_of(TEXT))),
            findings=list_of(_FINDING),
            open_spans=list_of(object_of(**SPAN_FIELDS, offset_ms=MS)),
            usual_ms=map_of(MS),
            logs=list_of(RECORD),
            alerts=list_of(RECORD),
            system=list_of(_READING),
            samples={**COUNTS, "description": "Rows of each table of samples; /api/runs/{run}/samples has them."},
            complete=BOOLEAN,
            window=INTEGER,
            previous_anomaly=_ANOMALY,
            next_anomaly=_ANOMALY,
        ),
        (
            RUN,
            Param("step", "integer", "the number of the step", required=True, place="path"),
            Param(
                "window",
                "integer",
                "the number of earlier steps that define what is usual",
                default=WINDOW,
                low=1,
                high=10_000,
            ),
            Param("attempt", "integer", "this attempt; by default the newest", low=1, high=2**31 - 1),
            Param(
                "limit", "integer", "the number of ranks, the odd and the slow ones first; else all", low=1, high=1000
            ),
            Param("offset", "integer", "with `limit`: skip this many ranks", default=0, low=0, high=1_000_000),
            Param("rank", "integer", "with `limit`: this rank comes first", low=0, high=2**32 - 1),
        ),
    ),
)
