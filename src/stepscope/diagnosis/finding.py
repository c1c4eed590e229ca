"""Findings: what went wrong, where, since when, the expected values, the likely cause and the advice."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stepscope.diagnosis.series_history import Series
from stepscope.model import formatting
from stepscope.model.names import ALERT_FINDING
from stepscope.model.records import Alert

Severity = Literal["INFO", "WARN", "ERROR", "FATAL"]
SEVERITIES: tuple[Severity, ...] = ("FATAL", "ERROR", "WARN", "INFO")
"""Most severe first. INFO explains what is seen and is no fault: it raises no alert."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. A newer finding with the same `identity` replaces the older one."""

    kind: str
    severity: Severity
    text: str
    step: int | None = None
    """The step at which it began or happened."""
    last: int | None = None
    """The last step it was seen at."""
    ranks: tuple[int, ...] = ()
    key: str | None = None
    also: tuple[str, ...] = ()
    """Other metrics that show it."""
    span: str | None = None
    value: float | None = None
    expected: tuple[float, float] | None = None
    """The band the value was expected in."""
    expects: str = ""
    """What was expected, in words, where it is not a band."""
    cause: str = ""
    advice: str = ""
    symptoms: tuple[str, ...] = ()
    """Other findings that this one explains, in words."""
    time: int = 0
    """The time of the record that triggered it, in ns."""
    attempt: int = 1
    weight: float = 0.0
    """The size of the deviation; orders findings of one kind."""

    @property
    def identity(self) -> tuple[object, ...]:
        """Identifies the finding within its run."""
        return self.kind, self.key, self.span, self.ranks, self.step, self.attempt


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: its severity, likely cause and advice, and the kinds that it explains."""

    name: str
    severity: Severity
    cause: str
    advice: str
    explains: tuple[str, ...] = ()
    """The kinds that are its symptoms when they begin at about the same step or later."""
    lasts: bool = False
    """Whether it persists, so that it explains symptoms at any later step."""
    expects: str = ""
    """What is expected instead, in words, for findings without a band."""
    rules_out: str = ""
    """What it cannot be, given that it was found; completes "This rules out ..."."""
    next: str = ""
    """The command to run next, RUN and STEP to be replaced; `stepscope step` or `show` where none is given."""

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
        """Return a finding about a series that began at a step, based on its newest value."""
        return self.finding(
            text,
            series.time,
            step=begun,
            last=series.step,
            ranks=(series.rank,),
            key=series.key,
            value=series.value if value is None else value,
            expected=expected,
            severity=severity,
            cause=cause,
            advice=advice,
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
        expects: str = "",
        severity: Severity | None = None,
        cause: str = "",
        advice: str = "",
        symptoms: tuple[str, ...] = (),
        attempt: int = 1,
        weight: float = 1.0,
    ) -> Finding:
        """Return a finding that is not about the newest value of one series."""
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
            expects=expects or ("" if expected is not None else self.expects),
            cause=cause or self.cause,
            advice=advice or self.advice,
            symptoms=symptoms,
            time=time,
            attempt=attempt,
            weight=weight,
        )

    def withdrawn(self, series: Series, begun: int) -> Finding:
        """Withdraw a finding that turned out to be something else."""
        return Finding(self.name, "WARN", "", step=begun, ranks=(series.rank,), key=series.key, weight=-1.0)


def finding_of_alert(alert: Alert, rank: int, attempt: int) -> Finding:
    """Return the finding that the trainer's own diagnosis recorded as an alert."""
    of = {name.removeprefix(f"{ALERT_FINDING}."): value for name, value in alert.attrs.items()}
    band, value = of.get("expected"), of.get("value")
    return Finding(
        str(of.get("kind", "alert")),
        "FATAL"
        if alert.severity >= 21
        else "ERROR"
        if alert.severity >= 17
        else "WARN"
        if alert.severity >= 13
        else "INFO",
        alert.message,
        step=of.get("since"),
        last=alert.step,
        ranks=(rank,),
        key=of.get("key"),
        span=of.get("span"),
        value=value if isinstance(value, (int, float)) else None,
        expected=(band[0], band[1]) if isinstance(band, (list, tuple)) and len(band) == 2 else None,
        expects=str(of.get("expects", "")),
        cause=str(of.get("cause", "")),
        advice=str(of.get("advice", "")),
        time=alert.time,
        attempt=attempt,
        weight=1.0,
    )


def number(value: float, digits: int = 4) -> str:
    """Format a value for a sentence, as page and terminal do."""
    return formatting.number(value, digits)


def seconds(value: float) -> str:
    """Format a duration for a sentence, as page and terminal do."""
    return formatting.duration(value)


def on_ranks(ranks: tuple[int, ...], everyone: int) -> str:
    """Format ranks for a sentence; empty for all ranks or the only one."""
    if everyone <= 1 or not ranks:
        return ""
    if len(ranks) >= everyone:
        return " on every rank"
    if len(ranks) == 1:
        return f" on rank {ranks[0]}"
    named = ", ".join(str(rank) for rank in ranks[:4])
    return f" on ranks {named}" + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
