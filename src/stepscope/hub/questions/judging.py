"""What was unusual about a step: levels for values and spans, and sentences; page and terminal only show them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stepscope.hub.questions.evidence import on_ranks
from stepscope.model.formatting import number, signed
from stepscope.model.names import SEVERITIES

NOTABLE_SIGMAS, UNUSUAL_SIGMAS, EXTREME_SIGMAS = 3.0, 6.0, 10.0
"""So many standard deviations from the mean of the steps before a value is of level 1, 2 or 3."""
STEADY_SHARE = 0.02
"""A value that moved by less than this share of the mean is never of level 2: schedules move so."""
SLOW_TIMES, VERY_SLOW_TIMES = 1.5, 3.0
"""A step or span that took so many times the usual is slow, or very slow..."""
SLOW_NS = 1e6
"""... when it took so much longer."""
MOST_ALERTS, MOST_VALUES, MOST_ERRORS = 5, 4, 3


def value_level(value: float, mean: float, delta: float | None, z: float | None) -> int:
    """Say how unusual a value is: 0 usual, 1 notable, 2 unusual, 3 extreme or not finite."""
    if not math.isfinite(value):
        return 3
    if z is None or delta is None or abs(z) < NOTABLE_SIGMAS:
        return 0
    if abs(z) < UNUSUAL_SIGMAS or abs(delta) < STEADY_SHARE * abs(mean):
        return 1
    return 3 if abs(z) >= EXTREME_SIGMAS else 2


def slow_level(duration: float | None, usual: float | None) -> int:
    """Say how slow a span was, in ns: 0 as usual, 1 slow, 2 very slow."""
    if duration is None or not usual or duration - usual < SLOW_NS or duration < SLOW_TIMES * usual:
        return 0
    return 2 if duration >= VERY_SLOW_TIMES * usual else 1


def findings(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Say what was unusual about a step as the API gives it: alerts, values, failed spans, lost time."""
    return [
        *_alerts(step["alerts"]),
        *_values(step["metrics"]),
        *_errors(step["ranks"]),
        *([_finding("slow_step", "WARN", step["slow"]["text"], step["slow"]["rank"])] if step["slow"] else []),
    ]


def _finding(kind: str, severity: str, text: str, rank: int | None) -> dict[str, Any]:
    return {"kind": kind, "severity": severity, "text": text, "rank": rank}


def _alerts(alerts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One sentence for the alerts of a name, with the message of the most severe."""
    named: dict[str, list[Mapping[str, Any]]] = {}
    for alert in alerts:
        named.setdefault(alert["name"], []).append(alert)
    return [_alert(name, each) for name, each in list(named.items())[:MOST_ALERTS]]


def _alert(name: str, alerts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst = max(alerts, key=lambda alert: alert["severity_number"])
    ranks = sorted({alert["rank"] for alert in alerts})
    severity = "ERROR" if worst["severity_number"] >= SEVERITIES["ERROR"] else "WARN"
    where = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
    message = f": {worst['body']}" if worst["body"] else ""
    text = f"{name} on {where}{message}"
    return _finding("alert", severity, text, ranks[0] if len(ranks) == 1 else None)


def _values(metrics: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One sentence for each metric with an unusual value, those that are not finite first."""
    odd = []
    for metric in metrics:
        strange = [value for value in metric["values"] if value["level"] >= 2]
        if strange:
            worst = max(strange, key=_distance)
            odd.append((_distance(worst), metric, worst, sorted({value["rank"] for value in strange})))
    odd.sort(key=lambda each: -each[0])
    return [_value(metric, worst, ranks) for _, metric, worst, ranks in odd[:MOST_VALUES]]


def _distance(value: Mapping[str, Any]) -> float:
    return math.inf if value["z"] is None else abs(value["z"])


def _value(metric: Mapping[str, Any], worst: Mapping[str, Any], ranks: Sequence[int]) -> dict[str, Any]:
    where = on_ranks(ranks, len({value["rank"] for value in metric["values"]}))
    text = f"{metric['key']} is {number(worst['value'])}{where}"
    if worst["z"] is not None:
        text += f", usually {number(worst['mean'], 3)} ± {number(worst['std'], 2)} ({signed(worst['z'], 3)} σ)"
    return _finding("value", "ERROR", text, ranks[0] if len(ranks) == 1 else None)


def _errors(lanes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    failed = [(lane["rank"], span) for lane in lanes for span in lane["spans"] if span["status"] == "error"]
    return [
        _finding(
            "error",
            "ERROR",
            f"{span['name']} failed on rank {rank}{': ' * bool(span['message'])}{span['message']}",
            rank,
        )
        for rank, span in failed[:MOST_ERRORS]
    ]
