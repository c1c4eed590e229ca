"""What went wrong in a run, found in what it recorded: nothing here knows what the run was meant to do."""

from statistics import median
from typing import Any

from stepscope.hub.questions.alarms import alarms
from stepscope.hub.questions.crashes import crashes
from stepscope.hub.questions.evidence import KINDS, Evidence, Finding
from stepscope.hub.questions.excursions import excursions
from stepscope.hub.questions.slowness import slow_findings, stragglers
from stepscope.wire.plain import word

MOST = 50
_KL_SETTINGS = ("target_kl", "kl_target")


def find(evidence: Evidence) -> list[Finding]:
    """Find what went wrong: crashes and errors that were raised first, then values, then time, then warnings.

    Of each kind the greatest comes first.
    """
    crashed = crashes(evidence)
    # The step at which a rank died is long for those who waited for it.
    deaths = {(each.attempt, each.step) for each in crashed if each.kind == "crash"}
    found = [
        *crashed,
        *excursions(evidence.courses, evidence.kl_target),
        *slow_findings([each for each in evidence.slow if (each.attempt, each.step) not in deaths]),
        *stragglers(evidence.paces, _step_time(evidence)),
    ]
    told = sorted(found, key=_order)[:MOST]
    everyone = len({process.rank for process in evidence.processes})
    return sorted([*told, *alarms(evidence.alarms, told, everyone)], key=_order)[:MOST]


def _order(finding: Finding) -> tuple[float, float]:
    """What the training code itself called an error comes before what only looks like one."""
    loud = finding.kind == "alert" and finding.severity != "WARN"
    return 0.5 if loud else KINDS.index(finding.kind), -finding.weight


def _step_time(evidence: Evidence) -> float:
    """How long a step takes: the median of the spans in which most of the time was spent."""
    spent: dict[str, float] = {}
    for pace in evidence.paces:
        spent[pace.name] = spent.get(pace.name, 0.0) + pace.median * pace.count
    longest = max(spent, key=lambda name: spent[name], default=None)
    return median(pace.median for pace in evidence.paces if pace.name == longest) if longest is not None else 0.0


def kl_target(config: Any) -> float | None:
    """The KL that a run aims at, where its configuration says so."""
    if not isinstance(config, dict):
        return None
    for key, value in config.items():
        if key in _KL_SETTINGS and isinstance(value, (int, float)) and value > 0:
            return float(value)
        if isinstance(value, dict) and (inner := kl_target(value)) is not None:
            return inner
    return None


def as_json(finding: Finding) -> dict[str, Any]:
    """A finding for programs; values of `slow_step` and `straggler` are milliseconds."""
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "text": finding.text,
        "step": finding.step,
        "first_step": finding.first,
        "last_step": finding.last,
        "rank": finding.rank,
        "ranks": list(finding.ranks),
        "key": finding.key,
        "also": list(finding.also),
        "span": finding.span,
        "attempt": finding.attempt,
        "value": None if finding.value is None else word(finding.value),
        "usual": None if finding.usual is None else word(finding.usual),
    }
