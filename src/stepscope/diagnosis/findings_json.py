"""Findings as JSON, the same in the hub's API and in commands without a hub."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, TypedDict

from msgspec import Meta

from stepscope.diagnosis import registry
from stepscope.diagnosis.finding import SEVERITIES, Finding, Kind, Severity, seconds
from stepscope.model.formatting import quantity
from stepscope.model.records import Number, word

IN_STEPS = frozenset(("data_stall", "slow_span", "periodic_stall", "straggler", "intermittent_straggler", "slow_link"))
"""Kinds about time lost inside steps."""

IN_SECONDS = IN_STEPS | {"hang", "slower_than_before", "checkpoint_growth", "checkpoint_old", "clock_skew"}
"""Kinds whose value and band are durations."""


class FindingJson(TypedDict):
    """What went wrong in a run."""

    kind: Annotated[str, Meta(examples=list(registry.KINDS))]
    severity: Severity
    text: Annotated[str, Meta(description="A readable sentence.")]
    step: Annotated[int | None, Meta(description="Where it started.")]
    first_step: int | None
    last_step: Annotated[int | None, Meta(description="Where it was last seen.")]
    rank: Annotated[int | None, Meta(description="The responsible rank; null where there are several.")]
    ranks: list[int]
    key: Annotated[str | None, Meta(description="The metric.")]
    also: Annotated[list[str], Meta(description="Other affected metrics.")]
    span: str | None
    attempt: int | None
    value: Annotated[Number | None, Meta(description="The measured value; a duration in seconds.")]
    usual: Annotated[Number | None, Meta(description="The middle of the expected range.")]
    expected: Annotated[list[Number] | None, Meta(description="The expected range.")]
    band: Annotated[str, Meta(description="The expectation in words, also if it is not a number.")]
    cause: Annotated[str, Meta(description="The likely cause.")]
    advice: Annotated[str, Meta(description="What to do.")]
    rules_out: Annotated[str, Meta(description="What it cannot be, given that it was found.")]
    next: Annotated[str, Meta(description="The command that shows more, with RUN for the run.")]
    since: Annotated[float | None, Meta(description="The time of the record that triggered it.")]
    symptoms: Annotated[list[str], Meta(description="Other findings that this one explains, as text.")]
    muted: Annotated[str, Meta(description="Why it needs no attention: `expected, marked by ann`; empty otherwise.")]


def as_json(finding: Finding, muted: str = "") -> FindingJson:
    """Return a finding as JSON; values of kinds about time are in seconds, `usual` is the middle of the band.

    `muted` is the reason why it needs no attention.
    """
    band, kind = finding.expected, _kinds().get(finding.kind)
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "text": finding.text,
        "step": finding.step,
        "first_step": finding.step,
        "last_step": finding.last if finding.last is not None else finding.step,
        "rank": finding.ranks[0] if len(finding.ranks) == 1 else None,
        "ranks": list(finding.ranks),
        "key": finding.key,
        "also": list(finding.also),
        "span": finding.span,
        "attempt": finding.attempt,
        "value": None if finding.value is None else word(finding.value),
        "usual": None if band is None else word((band[0] + band[1]) / 2),
        "expected": None if band is None else [word(band[0]), word(band[1])],
        "band": band_words(finding),
        "cause": finding.cause,
        "advice": finding.advice,
        "rules_out": kind.rules_out if kind is not None else "",
        "next": next_command(finding, kind),
        "since": round(finding.time / 1e9, 6) if finding.time else None,
        "symptoms": list(finding.symptoms),
        "muted": muted,
    }


@lru_cache(maxsize=1)
def _kinds() -> Mapping[str, Kind]:
    """Every kind by name, also of installed detectors."""
    return registry.kinds(registry.installed())


def next_command(finding: Finding, kind: Kind | None) -> str:
    """Return the command that shows more about a finding; RUN stands for the run."""
    if kind is not None and kind.next:
        return kind.next
    return "stepscope show RUN" if finding.step is None else f"stepscope step RUN {finding.step}"


def band_words(finding: Finding) -> str:
    """Return what was expected, in words; empty where a detector does not say it."""
    if finding.expects:
        return f"Expected {finding.expects}"
    if finding.expected is None:
        return ""
    low, high = (_word(finding, bound) for bound in finding.expected)
    if low == high:
        return f"Expected {low}"
    if not math.isfinite(finding.expected[0]):
        return f"Expected at most {high}"
    return f"Expected {low} to {high}" if math.isfinite(finding.expected[1]) else f"Expected at least {low}"


def _word(finding: Finding, bound: float) -> str:
    return seconds(bound) if finding.kind in IN_SECONDS else quantity(bound, finding.key or "")


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Sort findings by severity, then by start."""
    return sorted(found, key=lambda each: SEVERITIES.index(each.severity))
