"""What a run recorded besides metrics: spans by name, and how many logs, events and alerts of each kind there are."""

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from stepscope.hub.questions.toolbox.endpoint import RUN, Endpoint, Reader
from stepscope.hub.store.read.run_catalog import find_series, read_totals
from stepscope.model.names import OVERHEAD, severity_word
from stepscope.model.records import Number, word

MAX_NAMES = 10_000
SELF = "stepscope/"


class SpanSummary(TypedDict):
    """The spans of a name."""

    count: int
    errors: int
    mean_ms: float
    p50_ms: float
    max_ms: float


class OwnMetrics(TypedDict):
    """What Stepscope recorded of itself."""

    counters: dict[str, Number]
    overhead: Annotated[
        dict[str, Number], Meta(description="The share of time that it took of the process where it took most.")
    ]


class RunSummary(OwnMetrics):
    """What a run recorded besides metrics."""

    spans: Annotated[dict[str, SpanSummary], Meta(description="By name.")]
    logs: Annotated[dict[str, int], Meta(description="By severity.")]
    events: Annotated[dict[str, int], Meta(description="By name.")]
    alerts: Annotated[dict[str, int], Meta(description="By name.")]


@Endpoint("/api/runs/{run}/summary", "summariseRun", (RUN,))
def summary(reader: Reader, given: dict[str, Any]) -> RunSummary:
    """The spans of a run by name, its logs by severity, events and alerts by name, and Stepscope's own counters and
    overhead.
    """
    run = reader.number(given["run"])
    spans, logs, events, alerts = reader.engine.query_many(
        [
            f"""SELECT name, count() AS n, countIf(status = 2) AS errors, avg(duration) AS mean,
                quantile(0.5)(duration) AS median, max(duration) AS longest
            FROM spans WHERE run = {run} GROUP BY name ORDER BY name LIMIT {MAX_NAMES}""",
            f"SELECT severity, count() AS n FROM logs WHERE run = {run} AND kind = 2 GROUP BY severity",
            f"SELECT name, count() AS n FROM logs WHERE run = {run} AND kind = 3 GROUP BY name LIMIT {MAX_NAMES}",
            f"SELECT name, count() AS n FROM alerts WHERE run = {run} GROUP BY name LIMIT {MAX_NAMES}",
        ]
    )
    by_severity: dict[str, int] = {}
    for severity, count in logs.rows():
        by_severity[severity_word(severity)] = by_severity.get(severity_word(severity), 0) + count
    return {
        "spans": {
            name: {
                "count": count,
                "errors": errors,
                "mean_ms": mean / 1e6,
                "p50_ms": median / 1e6,
                "max_ms": longest / 1e6,
            }
            for name, count, errors, mean, median, longest in spans.rows()
        },
        "logs": by_severity,
        "events": dict(events.rows()),
        "alerts": dict(alerts.rows()),
        **_own_metrics(reader, run),
    }


def _own_metrics(reader: Reader, run: int) -> OwnMetrics:
    """Stepscope's own counters as last recorded, added up over ranks and attempts, and the newest overhead."""
    series = find_series(reader.engine, run)
    own = {number: row for number, row in series.items() if row.key.startswith(SELF)}
    found = read_totals(reader.engine, run, own)
    newest = max((each.attempt for each in found), default=1)
    counters: dict[str, float] = {}
    overhead: dict[str, float] = {}
    for each in found:
        key = each.series.key.removeprefix(SELF)
        if not key.startswith(OVERHEAD):
            counters[key] = counters.get(key, 0.0) + each.last
        elif each.attempt == newest:
            overhead[key] = max(overhead.get(key, 0.0), each.last)
    return {
        "counters": {key: word(value) for key, value in sorted(counters.items())},
        "overhead": {key: word(value) for key, value in sorted(overhead.items())},
    }
