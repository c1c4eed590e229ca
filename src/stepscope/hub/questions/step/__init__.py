"""The step inspector: everything that happened at one step of a run, on all ranks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from stepscope.alerts.alert import unexpected
from stepscope.diagnosis.finding import Finding, Severity
from stepscope.diagnosis.findings_json import IN_STEPS, worst_first
from stepscope.diagnosis.registry import KINDS
from stepscope.hub.questions.logs import RecordJson, record_json
from stepscope.hub.questions.step.rank_pages import RankPage
from stepscope.hub.questions.step.step_sql import (
    WINDOW,
    Anomaly,
    Reading,
    StepValue,
    StepView,
    nearest_anomalies,
    read_step,
)
from stepscope.hub.questions.toolbox.endpoint import (
    RUN,
    Attrs,
    Endpoint,
    Ms,
    Next,
    Param,
    Reader,
    milliseconds,
    seconds,
)
from stepscope.hub.questions.traces import Node, NodeJson, build_trees, mark_critical, node_json, walk
from stepscope.hub.questions.traces.stored_spans import PlacedSpan, RankSpans, SpanRow, placed_json
from stepscope.hub.refusals import not_found
from stepscope.hub.store.read.finding_catalog import read_findings
from stepscope.model import names
from stepscope.model.records import Number, Seconds, word
from stepscope.wire.plain import plain

MAX_NAMES = 50
"""Names of spans in the summary: those that took longest."""


class StepValueJson(TypedDict):
    """A value at a step against those of the steps before it."""

    rank: int
    attempt: int
    attrs: Attrs
    scope: str
    time: Seconds
    value: Number
    logged: int
    mean: Number | None
    std: Number | None
    before: Annotated[int, Meta(description="Steps that mean and standard deviation are of.")]
    delta: Number | None
    z: Annotated[float | None, Meta(description="Standard deviations away.")]
    level: Annotated[int, Meta(description="How unusual: 0 usual, 1 notable, 2 unusual, 3 extreme or not finite.")]


class StepMetric(TypedDict):
    """A metric at a step, with a value for each rank and set of attributes."""

    key: str
    unit: str
    values: list[StepValueJson]


class StepRank(TypedDict):
    """The spans of a rank at a step, parents first."""

    rank: int
    critical: Annotated[bool, Meta(description="Whether it ended last.")]
    offset_ms: Ms
    duration_ms: Ms
    errors: int
    critical_path: Annotated[list[str], Meta(description="Ids of spans.")]
    spans: list[NodeJson]


class SpanSpread(TypedDict):
    """The time that spans of a name took on the fastest, the median and the slowest rank."""

    name: str
    ranks: int
    usual_ms: Ms
    min_ms: Ms
    min_rank: int
    median_ms: Ms
    max_ms: Ms
    max_rank: int


class AllRanks(TypedDict):
    """What is known of all ranks, also of those that are on other pages."""

    count: int
    next: Next
    spans: list[SpanSpread]


class SlowStep(TypedDict):
    """Why a step was slow."""

    text: str
    span: str | None
    rank: Annotated[int | None, Meta(description="The responsible rank; null for several.")]
    span_ids: Annotated[list[str], Meta(description="The responsible spans, one for each rank.")]


class StepFinding(TypedDict):
    """A finding, an alert or a failed span."""

    kind: Annotated[str, Meta(examples=list(KINDS))]
    severity: Severity
    text: str
    rank: int | None


class ReadingJson(TypedDict):
    """A system metric around a step."""

    key: str
    rank: int
    unit: str
    attrs: Attrs
    time: Seconds
    value: Number
    min: Number
    max: Number
    points: int


class StepJson(TypedDict):
    """Everything about a step of some ranks."""

    run: str
    step: int
    attempt: int
    attempts: list[int]
    begin: Seconds
    end: Seconds
    duration_ms: Ms
    previous: Annotated[int | None, Meta(description="The nearest step before it with any record.")]
    next: Annotated[int | None, Meta(description="The nearest step after it with any record.")]
    metrics: list[StepMetric]
    ranks: list[StepRank]
    slow: SlowStep | None
    open_spans: list[PlacedSpan]
    usual_ms: Annotated[dict[str, float | None], Meta(description="The median duration of spans by name.")]
    logs: list[RecordJson]
    alerts: list[RecordJson]
    system: list[ReadingJson]
    findings: list[StepFinding]


class StepAnswer(StepJson):
    """Everything about one step."""

    all_ranks: AllRanks
    samples: Annotated[
        dict[str, int], Meta(description="Rows of each table of samples; /api/runs/{run}/samples has them.")
    ]
    complete: Annotated[bool, Meta(description="Whether all stored records of the run are diagnosed.")]
    window: int
    previous_anomaly: Anomaly | None
    next_anomaly: Anomaly | None


def step_json(view: StepView, run: str, found: Sequence[Finding]) -> StepJson:
    """Everything about a step; offsets count from `begin`. Refused when the given attempt did not reach it.

    `found` are the findings of the run without those marked as expected.
    """
    if view.attempts and view.attempt not in view.attempts:
        came = f"attempt{'s' * (len(view.attempts) > 1)} {', '.join(map(str, view.attempts))}"
        text = f"attempt {view.attempt} did not reach step {view.step}; {came} did"
        raise not_found(text)
    lanes = ranks(view.spans, view.usual, run, view.begin, view.last_rank)
    alerts = [record_json(row, run) for row in view.alerts]
    return {
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
        "ranks": lanes,
        "slow": slow_step(view, found),
        "open_spans": [placed_json(row, run, view.begin) for row in view.open],
        "usual_ms": {name: milliseconds(median) for name, median in sorted(view.usual.items())},
        "logs": [record_json(row, run) for row in view.logs],
        "alerts": alerts,
        "system": [_reading(reading) for reading in view.system],
        "findings": step_findings(view, found, alerts, lanes),
    }


def metrics(values: Iterable[StepValue]) -> list[StepMetric]:
    """The values of a step by key, one entry for each rank (and each set of attributes)."""
    by_key: dict[str, list[StepValue]] = {}
    for value in values:
        by_key.setdefault(value.series.key, []).append(value)
    return [
        {"key": key, "unit": group[0].series.unit, "values": [_value(value) for value in group]}
        for key, group in by_key.items()
    ]


def _value(value: StepValue) -> StepValueJson:
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
) -> list[StepRank]:
    """The span trees of each rank, flat: parents first, with depth; the rank that ended last is critical."""
    by_rank: dict[int, list[SpanRow]] = {}
    for row in spans:
        by_rank.setdefault(row.rank, []).append(row)
    grown = {rank: build_trees(rows) for rank, rows in sorted(by_rank.items())}
    return [_rank(rank, roots, usual, run, begin, critical=rank == last) for rank, roots in grown.items()]


def _rank(
    rank: int, roots: list[Node], usual: Mapping[str, float], run: str, begin: int, *, critical: bool
) -> StepRank:
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


def summary(outline: Iterable[RankSpans], usual: Mapping[str, float]) -> list[SpanSpread]:
    """The time that the spans of each name took on the fastest, the median and the slowest rank, longest first."""
    by_name: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for each in outline:
        by_name[each.name][each.rank] += each.spent
    longest = sorted(by_name.items(), key=lambda item: (-max(item[1].values()), item[0]))
    return [_summed(name, spent, usual) for name, spent in longest[:MAX_NAMES]]


def _summed(name: str, spent: Mapping[int, int], usual: Mapping[str, float]) -> SpanSpread:
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


def _reading(reading: Reading) -> ReadingJson:
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


@Endpoint(
    "/api/runs/{run}/steps/{step}",
    "inspectStep",
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
        Param("limit", "integer", "the number of ranks, the odd and the slow ones first; else all", low=1, high=1000),
        Param("offset", "integer", "with `limit`: skip this many ranks", default=0, low=0, high=1_000_000),
        Param("rank", "integer", "with `limit`: this rank comes first", low=0, high=2**32 - 1),
    ),
)
def inspect(reader: Reader, given: dict[str, Any]) -> StepAnswer:
    """Everything about one step: values compared with earlier steps, span trees, logs, alerts, system metrics."""
    run, step = reader.number(given["run"]), given["step"]
    share = reader.diagnosed(given["run"])
    before, after = nearest_anomalies(reader.engine, run, step)
    found = read_findings(reader.engine, run)
    if found:
        project = reader.recorded(given["run"]).project if (marks := reader.marks) else ""
        found = worst_first(unexpected(found, given["run"], project, marks))
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
        "samples": view.samples,
        "complete": share >= 1.0,
        "window": given["window"],
        "previous_anomaly": before,
        "next_anomaly": after,
    }


def _concerns(finding: Finding, step: int, attempt: int) -> bool:
    """Return whether a finding concerns a step of an attempt."""
    if finding.step is None or finding.attempt != attempt:
        return False
    return finding.step <= step <= max(finding.last if finding.last is not None else finding.step, finding.step)


def _slow_finding(found: Sequence[Finding], step: int, attempt: int) -> Finding | None:
    """Return the finding that explains a slow step; one about that step alone is preferred to a lasting one."""
    mine = [each for each in found if each.kind in IN_STEPS and each.span and _concerns(each, step, attempt)]
    return min(mine, key=lambda each: (each.last or 0) - (each.step or 0), default=None)


def _page(given: Mapping[str, Any], found: Sequence[Finding]) -> RankPage | None:
    """The page of ranks that is asked for: first the rank that is named, then some that findings name."""
    limit, step, attempt = given["limit"], given["step"], given["attempt"]
    if limit is None:
        return None
    named = () if given["rank"] is None else (given["rank"],)
    at_fault = [rank for each in found if _concerns(each, step, attempt or each.attempt) for rank in each.ranks]
    return RankPage(limit, given["offset"], (*named, *at_fault[: limit // 2]))


_RECORDED = frozenset(("alert", "error"))
"""Kinds of findings that are also among the records of the step."""
MAX_ALERTS, MAX_ERRORS = 20, 20


def step_findings(
    view: StepView, found: Sequence[Finding], alerts: Sequence[RecordJson], lanes: Iterable[StepRank]
) -> list[StepFinding]:
    """The findings of a run that concern a step, its alerts and its failed spans; the last two are given as JSON."""
    named = [
        _finding(each.kind, each.severity, each.text, each.ranks)
        for each in found
        if each.kind not in _RECORDED and _concerns(each, view.step, view.attempt)
    ]
    return [*named, *_alerts(alerts), *_errors(lanes)]


def slow_step(view: StepView, found: Sequence[Finding]) -> SlowStep | None:
    """Where the time of a step went, with the spans to blame: of the ranks at fault, those with most self time."""
    finding = _slow_finding(found, view.step, view.attempt)
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


def _finding(kind: str, severity: Severity, text: str, ranks: Sequence[int]) -> StepFinding:
    return {"kind": kind, "severity": severity, "text": text, "rank": ranks[0] if len(ranks) == 1 else None}


def _alerts(alerts: Sequence[RecordJson]) -> list[StepFinding]:
    """One sentence for the alerts of a name, with the message of the most severe."""
    named: dict[str, list[RecordJson]] = {}
    for alert in alerts:
        named.setdefault(alert["name"] or "", []).append(alert)
    return [_alert(name, each) for name, each in list(named.items())[:MAX_ALERTS]]


def _alert(name: str, alerts: Sequence[RecordJson]) -> StepFinding:
    worst = max(alerts, key=lambda alert: alert["severity_number"])
    ranks = sorted({alert["rank"] for alert in alerts})
    severity: Severity = "ERROR" if worst["severity_number"] >= names.SEVERITIES["ERROR"] else "WARN"
    where = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    message = f": {worst['body']}" if worst["body"] else ""
    return _finding("alert", severity, f"{name} on {where}{message}", ranks)


def _errors(lanes: Iterable[StepRank]) -> list[StepFinding]:
    failed = [(lane["rank"], span) for lane in lanes for span in lane["spans"] if span["status"] == "error"]
    return [
        _finding("error", "ERROR", f"{span['name']} failed on rank {rank}{_after(span['message'])}", (rank,))
        for rank, span in failed[:MAX_ERRORS]
    ]


def _after(message: str) -> str:
    return f": {message}" if message else ""
