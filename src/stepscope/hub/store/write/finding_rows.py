"""Findings of runs as rows: the whole list of a run is rewritten whenever it changes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from stepscope.diagnosis.finding import SEVERITIES, Finding
from stepscope.hub.store.columns import Block, Lists, Texts, ends_of, numbers, texts
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.records import FIRST_STEP, LAST_STEP

HAS_VALUE, HAS_BAND = 1, 2
"""Bits of `given`: which fields of a finding are set."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """The findings of a run, the version of the diagnosis, and the last commit they cover; 0 if unknown."""

    run: int
    findings: Sequence[Finding]
    engine: int
    commit: int


def write_findings(engine: Engine, runs: Sequence[Diagnosed], version: int) -> None:
    """Store the findings of some runs; `version` must be higher than the one stored before."""
    rows = [(each.run, place, finding) for each in runs for place, finding in enumerate(each.findings)]
    if rows:
        engine.insert("findings", _findings(rows, version))
    engine.insert("diagnoses", _diagnoses(runs, version))


def finding_id(finding: Finding) -> int:
    """Compute a number that identifies a finding in its run."""
    encoded = repr(finding.identity).encode("utf-8", "replace")
    return int.from_bytes(hashlib.md5(encoded, usedforsecurity=False).digest()[:8], "big")


def worst(findings: Sequence[Finding]) -> str:
    """The highest severity of faults; empty when there are none."""
    faults = (each.severity for each in findings if each.severity != "INFO")
    return min(faults, key=SEVERITIES.index, default="")


def _diagnoses(runs: Sequence[Diagnosed], version: int) -> Block:
    return {
        "run": numbers("UInt32", [each.run for each in runs]),
        "version": numbers("Int64", [version] * len(runs)),
        "engine": numbers("UInt32", [each.engine for each in runs]),
        "commit": numbers("UInt32", [each.commit for each in runs]),
        "found": numbers("UInt32", [len(each.findings) for each in runs]),
        "worst": texts([worst(each.findings) for each in runs]),
    }


def _findings(rows: Sequence[tuple[int, int, Finding]], version: int) -> Block:
    found = [row[2] for row in rows]
    ranks = [[rank for rank in each.ranks if rank >= 0] for each in found]
    band = [each.expected or (0.0, 0.0) for each in found]
    given = [
        HAS_VALUE * (each.value is not None) + HAS_BAND * (each.expected is not None and None not in each.expected)
        for each in found
    ]
    return {
        "run": numbers("UInt32", [row[0] for row in rows]),
        "place": numbers("UInt32", [row[1] for row in rows]),
        "version": numbers("Int64", [version] * len(rows)),
        "id": numbers("UInt64", map(finding_id, found)),
        "kind": texts([each.kind for each in found]),
        "severity": texts([each.severity for each in found]),
        "text": _texts([each.text for each in found]),
        "step": numbers("Int64", [_step(each.step) for each in found]),
        "last": numbers("Int64", [_step(each.last) for each in found]),
        "ranks": Lists(ends_of(map(len, ranks)), numbers("UInt32", [rank for each in ranks for rank in each])),
        "key": _texts([each.key or "" for each in found]),
        "also": _lists([each.also for each in found]),
        "span": _texts([each.span or "" for each in found]),
        "given": numbers("UInt8", given),
        "value": numbers("Float64", [0.0 if each.value is None else each.value for each in found]),
        "low": numbers("Float64", [low for low, _ in band]),
        "high": numbers("Float64", [high for _, high in band]),
        "expects": _texts([each.expects for each in found]),
        "cause": _texts([each.cause for each in found]),
        "advice": _texts([each.advice for each in found]),
        "symptoms": _lists([each.symptoms for each in found]),
        "time": numbers("Int64", [each.time for each in found]),
        "attempt": numbers("UInt16", [min(each.attempt, 65535) for each in found]),
        "weight": numbers("Float64", [each.weight for each in found]),
    }


def _step(step: int | None) -> int:
    return NO_STEP if step is None else max(min(step, LAST_STEP), FIRST_STEP)


def _texts(values: Sequence[str]) -> Texts:
    return texts([value.encode("utf-8", "replace").decode() for value in values])


def _lists(values: Sequence[Sequence[str]]) -> Lists:
    return Lists(ends_of(map(len, values)), _texts([text for each in values for text in each]))
