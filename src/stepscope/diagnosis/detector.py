"""The shape of a detector: what it watches, what it takes, what it says."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stepscope.diagnosis.finding import Finding, Severity
from stepscope.diagnosis.series import Series


class Point(NamedTuple):
    """One value of a series."""

    step: int
    time: int
    value: float
    block: bool
    """Whether it completed a block of its series."""


def about(
    series: Series,
    point: Point,
    kind: str,
    severity: Severity,
    begun: int,
    text: str,
    expected: tuple[float, float],
    cause: str,
    advice: str,
) -> Finding:
    """Make the finding of a series that began at a step and was decided by a value."""
    return Finding(
        kind,
        severity,
        text,
        step=begun,
        last=point.step,
        ranks=(series.rank,),
        key=series.key,
        value=point.value,
        expected=expected,
        cause=cause,
        advice=advice,
        time=point.time,
        weight=1.0,
    )


class Watch(Protocol):
    """A detector at work on one series; it lives as long as the series."""

    def take(self, series: Series, point: Point, run: "RunState") -> Finding | None:
        """Judge a finite value that the series has just taken."""


@dataclass(slots=True)
class Change:
    """A setting of the run that changed as it went: what it was, what it became."""

    step: int
    key: str
    before: float
    after: float


@dataclass(slots=True)
class RunState:
    """What detectors share: the configuration, what changed on purpose, and the series they compare with."""

    config: dict[str, Any] = field(default_factory=dict)
    world: int = 1
    attempt: int = 1
    changes: list[Change] = field(default_factory=list)
    """The last changes of learning rates and stages."""
    series: dict[tuple[str, int], Series] = field(default_factory=dict)
    roles: set[str] = field(default_factory=set)
    settings: dict[tuple[str, ...], float | None] = field(default_factory=dict)
    """Numbers of the configuration that were asked for."""
    resumed: int | None = None
    """The first step of the newest attempt, if it is not the first attempt."""

    def changed(self, first: int, last: int) -> list[Change]:
        """The changes between two steps."""
        return [change for change in self.changes if first <= change.step <= last]

    def of_role(self, name: str, rank: int, held_out: bool | None = None) -> list[Series]:
        """The series of a rank with a role."""
        return [
            each
            for (_, at), each in self.series.items()
            if at == rank and each.role.name == name and (held_out is None or each.role.held_out == held_out)
        ]

    @property
    def reinforcement(self) -> bool:
        """Whether this looks like reinforcement learning, where a loss says little."""
        return bool({"reward", "kl", "entropy", "clip_fraction", "explained_variance"} & self.roles)

    def setting(self, *names: str) -> float | None:
        """A number of the configuration, by the names it may have, at any depth."""
        if names not in self.settings:
            self.settings[names] = _find(self.config, frozenset(names))
        return self.settings[names]


def _find(config: Any, names: frozenset[str]) -> float | None:
    if not isinstance(config, dict):
        return None
    for key, value in config.items():
        if str(key).lower() in names and isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    for value in config.values():
        if (found := _find(value, names)) is not None:
            return found
    return None
