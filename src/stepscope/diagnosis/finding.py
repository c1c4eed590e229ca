"""A finding: what went wrong, where, since when, what was expected, the likely cause and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stepscope.diagnosis.series import Series
from stepscope.model.names import ALERT_FINDING
from stepscope.model.records import Alert

Severity = Literal["WARN", "ERROR", "FATAL"]
SEVERITIES: tuple[Severity, ...] = ("FATAL", "ERROR", "WARN")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that went wrong. A newer finding with the same `identity` replaces the older one."""

    kind: str
    severity: Severity
    text: str
    step: int | None = None
    """Where it began, or for a single event where it was."""
    last: int | None = None
    """The last step it was seen at."""
    ranks: tuple[int, ...] = ()
    key: str | None = None
    also: tuple[str, ...] = ()
    """Other metrics that it showed in."""
    span: str | None = None
    value: float | None = None
    expected: tuple[float, float] | None = None
    """The band the value was expected in."""
    cause: str = ""
    advice: str = ""
    symptoms: tuple[str, ...] = ()
    """Other findings that this one explains, in words."""
    time: int = 0
    """When it was noticed: the time of the record that decided it, in ns."""
    attempt: int = 1
    weight: float = 0.0
    """How far out it is; orders findings of one kind."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What tells it from other findings of the run."""
        return self.kind, self.key, self.span, self.ranks, self.step, self.attempt


@dataclass(frozen=True, slots=True)
class Kind:
    """What all findings of one kind share: how bad they are, the likely cause, what to do, and what they explain."""

    name: str
    severity: Severity
    cause: str
    advice: str
    explains: tuple[str, ...] = ()
    """Kinds of findings that are its symptoms, when they come at about the same step or after it."""
    lasts: bool = False
    """Whether it goes on: everything it explains after it is its symptom."""

    def about(
        self,
        series: Series,
        begun: int,
        text: str,
        expected: tuple[float, float],
        *,
        value: float | None = None,
        severity: Severity | None = None,
        cause: str = "",
        advice: str = "",
        attempt: int = 1,
        weight: float = 1.0,
    ) -> Finding:
        """Make the finding of a series that began at a step and was decided by its newest value."""
        return Finding(
            self.name,
            severity or self.severity,
            text,
            step=begun,
            last=series.step,
            ranks=(series.rank,),
            key=series.key,
            value=series.value if value is None else value,
            expected=expected,
            cause=cause or self.cause,
            advice=advice or self.advice,
            time=series.time,
            attempt=attempt,
            weight=weight,
        )

    def finding(
        self,
        text: str,
        time: int,
        *,
        step: int | None = None,
        last: int | None = None,
        ranks: Iterable[int] = (),
        key: str | None = None,
        also: tuple[str, ...] = (),
        span: str | None = None,
        value: float | None = None,
        expected: tuple[float, float] | None = None,
        severity: Severity | None = None,
        cause: str = "",
        advice: str = "",
        symptoms: tuple[str, ...] = (),
        attempt: int = 1,
        weight: float = 1.0,
    ) -> Finding:
        """Make a finding that is not about the newest value of one series."""
        return Finding(
            self.name,
            severity or self.severity,
            text,
            step=step,
            last=step if last is None else last,
            ranks=tuple(ranks),
            key=key,
            also=also,
            span=span,
            value=value,
            expected=expected,
            cause=cause or self.cause,
            advice=advice or self.advice,
            symptoms=symptoms,
            time=time,
            attempt=attempt,
            weight=weight,
        )

    def withdrawn(self, series: Series, begun: int) -> Finding:
        """Take back a finding: what looked like it turned out to be something else."""
        return Finding(self.name, "WARN", "", step=begun, ranks=(series.rank,), key=series.key, weight=-1.0)


def told_finding(alert: Alert, rank: int, attempt: int) -> Finding:
    """The finding that a diagnosis in the trainer recorded as an alert."""
    of = {name.removeprefix(f"{ALERT_FINDING}."): value for name, value in alert.attrs.items()}
    band, value = of.get("expected"), of.get("value")
    return Finding(
        str(of.get("kind", "alert")),
        "FATAL" if alert.severity >= 21 else "ERROR" if alert.severity >= 17 else "WARN",
        alert.message,
        step=of.get("since"),
        last=alert.step,
        ranks=(rank,),
        key=of.get("key"),
        span=of.get("span"),
        value=value if isinstance(value, (int, float)) else None,
        expected=(band[0], band[1]) if isinstance(band, (list, tuple)) and len(band) == 2 else None,
        cause=str(of.get("cause", "")),
        advice=str(of.get("advice", "")),
        time=alert.time,
        attempt=attempt,
        weight=1.0,
    )


def number(value: float) -> str:
    """Spell a value in a sentence."""
    return f"{value:.4g}"


def seconds(value: float) -> str:
    """Spell a duration in a sentence."""
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.3g} min" if value < 7200 else f"{value / 3600:.3g} h"


def on_ranks(ranks: tuple[int, ...], everyone: int) -> str:
    """Name the ranks in a sentence; nothing where all or the only one are meant."""
    if everyone <= 1 or not ranks:
        return ""
    if len(ranks) >= everyone:
        return " on every rank"
    if len(ranks) == 1:
        return f" on rank {ranks[0]}"
    named = ", ".join(str(rank) for rank in ranks[:4])
    return f" on ranks {named}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
