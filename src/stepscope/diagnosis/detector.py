"""The shape of a detector: the kinds it finds with their words, what it watches, its state and its verdict."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from stepscope.diagnosis.finding import Finding, Kind
from stepscope.diagnosis.series import Series
from stepscope.model.records import Event, Log, Span


class SeriesDetector(Protocol):
    """Watches one series of a role; it is made when the series begins and lives as long."""

    KINDS: ClassVar[tuple[Kind, ...]]
    ROLES: ClassVar[tuple[str, ...]]
    """The roles whose series it watches."""
    HELD_OUT: ClassVar[bool | None]
    """Whether it watches series of held-out data only (True), of training only (False), or both (None)."""
    EACH: ClassVar[Literal["value", "block"]]
    """Whether `take` is called for each value, or when a block of them is complete, which costs less."""

    def __init__(self, series: Series, run: "RunState") -> None: ...

    def take(self) -> Finding | None:
        """Judge the newest value of the series, which is finite."""


class RunDetector(Protocol):
    """Watches a whole run, on all ranks. It has any of the methods of the protocols below."""

    KINDS: ClassVar[tuple[Kind, ...]]

    def __init__(self, run: "RunState") -> None: ...


Found = Iterable[Finding]


@runtime_checkable
class SpanTaker(Protocol):
    """Takes spans that have ended within a step."""

    def span(self, rank: int, span: Span) -> Found:
        """Judge a span."""


@dataclass(slots=True)
class StepTimes:
    """A step that one rank has ended: when, and the self time of each span name in seconds."""

    rank: int
    step: int
    began: int
    took: float
    own: dict[str, float]

    @property
    def ended(self) -> int:
        """When it ended, in ns."""
        return self.began + int(self.took * 1e9)


@runtime_checkable
class StepTaker(Protocol):
    """Takes the spans of each step of each rank, when its root span has ended."""

    def step(self, times: StepTimes) -> Found:
        """Judge a step of a rank."""


@runtime_checkable
class RowTaker(Protocol):
    """Takes each step when all ranks have ended it."""

    def row(self, row: dict[int, StepTimes]) -> Found:
        """Judge a step of all ranks, by rank."""


@runtime_checkable
class LogTaker(Protocol):
    """Takes log lines."""

    def log(self, rank: int, log: Log, step: int | None) -> Found:
        """Judge a line."""


@runtime_checkable
class EventTaker(Protocol):
    """Takes events."""

    def event(self, rank: int, event: Event) -> Found:
        """Judge an event."""


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
    """Series that have a role."""
    by_role: dict[tuple[str, int], list[Series]] = field(default_factory=dict)
    roles: set[str] = field(default_factory=set)
    settings: dict[tuple[str, ...], float | None] = field(default_factory=dict)
    """Numbers of the configuration that were asked for."""
    begun: int = 0
    """The time of the first record."""
    resumed: int | None = None
    """The first step of the newest attempt, if it is not the first attempt."""
    usual_step: float = 0.0
    """How long a step usually takes, in seconds; 0 where that is not known."""
    earlier: tuple[float, ...] = ()
    """The median step times of earlier runs like this one, in seconds."""

    def changed(self, first: int, last: int) -> list[Change]:
        """The changes between two steps."""
        return [change for change in self.changes if first <= change.step <= last]

    def restaged(self, first: int, last: int) -> bool:
        """Whether a new stage or epoch began between two steps."""
        return any(change.key.startswith("stage:") for change in self.changed(first, last))

    def raised(self, first: int, last: int) -> bool:
        """Whether a learning rate that rose, or a new stage, explains a change between two steps."""
        return any(
            change.after > 1.3 * change.before or change.key.startswith("stage:")
            for change in self.changed(first, last)
        )

    def add(self, series: Series) -> None:
        """Add a series with a role."""
        self.series[series.key, series.rank] = series
        self.by_role.setdefault((series.role.name, series.rank), []).append(series)
        self.roles.add(series.role.name)

    def of_role(self, name: str, rank: int, held_out: bool | None = None) -> list[Series]:
        """The series of a rank with a role."""
        found = self.by_role.get((name, rank), [])
        return [each for each in found if held_out is None or each.role.held_out == held_out]

    @property
    def reinforcement(self) -> bool:
        """Whether this looks like reinforcement learning, where a loss says little."""
        return not _POLICY.isdisjoint(self.roles)

    def setting(self, *names: str) -> float | None:
        """A number of the configuration, by the names it may have, at any depth."""
        if names not in self.settings:
            self.settings[names] = _find(self.config, frozenset(names))
        return self.settings[names]


def judged_once(
    name: str,
    kind: Kind,
    roles: tuple[str, ...],
    judge: Callable[[Series, RunState], Finding | None],
    *,
    held_out: bool | None = False,
    each: Literal["value", "block"] = "block",
) -> type[SeriesDetector]:
    """Make a detector that has no state but its series: `judge` is called until it finds something."""

    class Once:
        KINDS: ClassVar[tuple[Kind, ...]] = (kind,)
        ROLES: ClassVar[tuple[str, ...]] = roles
        HELD_OUT: ClassVar[bool | None] = held_out
        EACH: ClassVar[Literal["value", "block"]] = each

        __slots__ = ("_found", "_run", "_series")

        def __init__(self, series: Series, run: RunState) -> None:
            self._series, self._run, self._found = series, run, False

        def take(self) -> Finding | None:
            if self._found:
                return None
            found = judge(self._series, self._run)
            self._found = found is not None
            return found

    Once.__name__ = name
    return Once


_POLICY = frozenset(("reward", "kl", "entropy", "clip_fraction", "explained_variance"))


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
