"""The detector protocols, and the state of a run that detectors share."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from stepscope.diagnosis.finding import Finding, Kind
from stepscope.diagnosis.roles import measure
from stepscope.diagnosis.series_history import Series
from stepscope.diagnosis.span_names import traits
from stepscope.model.records import Event, Log, Span

K = TypeVar("K")
V = TypeVar("V")


class SeriesDetector(Protocol):
    """Watches one series of a role; created with the series' first value."""

    KINDS: ClassVar[tuple[Kind, ...]]
    ROLES: ClassVar[tuple[str, ...]]
    """The roles whose series it watches."""
    HELD_OUT: ClassVar[bool | None]
    """Whether it watches series of held-out data only (True), of training only (False), or both (None)."""
    EACH: ClassVar[Literal["value", "block"]]
    """Whether `take` is called for each value, or when a block of them is complete, which costs less."""

    def __init__(self, series: Series, run: "RunState") -> None: ...

    def take(self) -> Finding | None:
        """Evaluate the newest value of the series, which is finite."""


class RunDetector(Protocol):
    """Watches a whole run, on all ranks. It implements any of the protocols below."""

    KINDS: ClassVar[tuple[Kind, ...]]

    def __init__(self, run: "RunState") -> None: ...


Found = Iterable[Finding]


@runtime_checkable
class SpanTaker(Protocol):
    """Receives spans that ended within a step."""

    def span(self, rank: int, span: Span) -> Found:
        """Evaluate a span."""


@dataclass(slots=True)
class StepTimes:
    """A finished step of one rank: its time, and the self time of each span name in seconds."""

    rank: int
    step: int
    began: int
    took: float
    own: dict[str, float]
    partial: bool = False
    """Whether the phases of this step were not timed, while those of others were."""
    ended: int = field(init=False)
    """The end time in ns."""
    rare: bool = field(init=False)
    """Whether the step did something that most steps do not, such as an evaluation."""

    def __post_init__(self) -> None:
        self.ended = self.began + int(self.took * 1e9)
        self.rare = _has_rare(tuple(self.own))


@lru_cache(maxsize=64)
def _has_rare(names: tuple[str, ...]) -> bool:
    return any(traits(name).rare for name in names)


class Values(NamedTuple):
    """Consecutive values of a series that are still to be added to it, all finite, as columns."""

    steps: list[int]
    times: list[int]
    values: list[float]


class Steps(NamedTuple):
    """Consecutive steps of a run with one rank, with the same spans, none of them rare, as columns: see `StepTimes`."""

    rank: int
    steps: list[int]
    began: list[int]
    ended: list[int]
    took: list[float]
    own: dict[str, list[float]]

    def part(self, cut: slice) -> "Steps":
        """Return some of them."""
        own = {name: each[cut] for name, each in self.own.items()}
        return Steps(self.rank, self.steps[cut], self.began[cut], self.ended[cut], self.took[cut], own)

    def last(self) -> StepTimes:
        """Return the last one."""
        own = {name: each[-1] for name, each in self.own.items()}
        return StepTimes(self.rank, self.steps[-1], self.began[-1], self.took[-1], own)


Columns = TypeVar("Columns", Values, Steps, contravariant=True)


@runtime_checkable
class Usual(Protocol[Columns]):
    """A detector that can take what is usual many at a time; of a series they are added to it in between."""

    def usual(self, ahead: Columns) -> int:
        """Count how many of them, from the first on, `learn` can take: it would find nothing. Changes nothing."""

    def learn(self, taken: Columns) -> None:
        """Take some at once, as if they had been taken one by one."""


@runtime_checkable
class StepTaker(Protocol):
    """Receives each step of each rank, once its root span has ended."""

    def step(self, times: StepTimes) -> Found:
        """Evaluate a step of a rank."""


@runtime_checkable
class RowTaker(Protocol):
    """Receives each step once all ranks have finished it."""

    def row(self, row: dict[int, StepTimes]) -> Found:
        """Evaluate a step of all ranks, by rank."""


@runtime_checkable
class LogTaker(Protocol):
    """Receives log records."""

    def log(self, rank: int, log: Log, step: int | None) -> Found:
        """Evaluate a log record."""


@runtime_checkable
class SampleTaker(Protocol):
    """Receives rows of tables of samples: log records whose body is the table and whose attributes are the columns."""

    def sample(self, rank: int, log: Log, step: int | None) -> Found:
        """Evaluate a row."""


@runtime_checkable
class EventTaker(Protocol):
    """Receives events."""

    def event(self, rank: int, event: Event) -> Found:
        """Evaluate an event."""


METHODS = ("span", "step", "row", "log", "sample", "event")
"""The methods of detectors of a whole run."""


def is_run_detector(detector: type) -> bool:
    """Whether a class takes something of the whole run."""
    return any(hasattr(detector, method) for method in METHODS)


RATE_EXPLAINS, STAGE_EXPLAINS = math.log(2.0), math.log(4.0)
"""The largest rise of a loss, in logarithms, that a raised learning rate or a new stage explains."""
_TASK = re.compile(r"(task|experience)(_id)?$", re.IGNORECASE)
MAX_HELD_OUT = 16
BUSY_PRESSURE, BUSY_MEMORY, BUSY_THROTTLED, BUSY_LOAD = 0.3, 0.1, 0.1, 1.5
"""A machine is busy when tasks wait such shares of the time for a CPU or for memory, when its control group stops the
process for such a share, or from this load per CPU on."""
NO_PRESSURE = 0.05
"""Where tasks wait less than this share of the time for a CPU, a load says nothing."""
BUSY_READINGS = 3
"""The highest of the last readings counts: what is judged began some steps ago."""
SPARSE, MAX_APART = 4.0, 500.0
"""Values that are so many steps apart are few, and each of them counts; beyond that, steps are of something else."""
_OF_MODELS = frozenset(
    (
        *("loss", "side_loss", "grad_norm", "accuracy", "kl", "reference_kl", "entropy", "value_estimate"),
        *(
            "explained_variance",
            "embedding_spread",
            "sample_spread",
            "chosen_logps",
            "router_entropy",
            "moe_load",
            "moe_balance",
            "memory",
            "gpu_memory",
        ),
    )
)
MAX_SETTINGS = 10_000
"""The most settings; further ones are ignored."""


@dataclass(slots=True)
class Change:
    """An intentional change during the run, such as a new learning rate: the old and the new value."""

    step: int
    key: str
    before: float
    after: float

    @property
    def is_stage(self) -> bool:
        """Whether a new stage began, or a new epoch."""
        return self.key.startswith(("stage:", "epoch:"))

    @property
    def is_task(self) -> bool:
        """Whether another task began: what was learnt for the last one says nothing about it."""
        return self.is_stage and _TASK.search(self.key) is not None


@dataclass(slots=True)
class RunState:
    """The state that detectors share: the configuration, intentional changes, and all series by role."""

    config: dict[str, Any] = field(default_factory=dict)
    world: int = 1
    attempt: int = 1
    changes: list[Change] = field(default_factory=list)
    """The last changes of learning rates and stages."""
    series: dict[tuple[str, int], Series] = field(default_factory=dict)
    """Series that have a role."""
    by_role: dict[tuple[str, int], list[Series]] = field(default_factory=dict)
    roles: set[str] = field(default_factory=set)
    held_out: list[Series] = field(default_factory=list)
    """The first few series of held-out data."""
    settings: dict[tuple[str, ...], Any] = field(default_factory=dict)
    """A cache of settings from the configuration."""
    configured_by: tuple[int, int] = (0, 0)
    """The attempt and, negative, the rank whose configuration counts."""
    begun: int = 0
    """The time of the first record."""
    resumed: int | None = None
    """The first step of the newest attempt, if it is not the first attempt."""
    usual_step: float = 0.0
    """The median step time in seconds; 0 while unknown."""
    earlier: tuple[float, ...] = ()
    """The median step times of earlier runs like this one, in seconds."""

    def changed(self, first: int, last: int, *, epochs: bool = True) -> list[Change]:
        """Return the changes between two steps; a new epoch explains what happens at it, and nothing that lasts."""
        found = [change for change in self.changes if first <= change.step <= last]
        return found if epochs else [change for change in found if not change.key.startswith("epoch:")]

    def restaged(self, first: int, last: int) -> bool:
        """Return whether a new stage or epoch began between two steps."""
        return any(change.is_stage for change in self.changed(first, last))

    def raised(self, first: int, last: int, rise: float = 0.0, *, epochs: bool = True) -> bool:
        """Return whether a higher learning rate or a new stage explains a change between two steps.

        `rise` is its size, in logarithms: an ordinary change of the settings explains no larger one than these.
        """
        return any(
            rise < (math.inf if change.is_task else STAGE_EXPLAINS if change.is_stage else RATE_EXPLAINS)
            for change in self.changed(first, last, epochs=epochs)
            if change.after > 1.3 * change.before or change.is_stage
        )

    def reweighted(self, rank: int, first: int, rise: float) -> bool:
        """Return whether the weight of a part of the loss rose since a step, by as much as the loss, in logarithms."""
        for each in self.of_role("loss_weight", rank):
            before = [value for step, value in zip(each.steps, each.values, strict=True) if step <= first]
            was, now = before[-1] if before else each.values[0], max(each.values)
            if now > 0 and rise < (math.log(now / was) if was > 0 else STAGE_EXPLAINS):
                return True
        return False

    def busy(self, rank: int) -> str:
        """Return how busy the machine of a rank is, in words; empty when it is not, or not known."""
        if (pressure := self.reading("host_pressure", rank)) >= BUSY_PRESSURE:
            return f"tasks wait for a CPU {pressure:.0%} of the time"
        if (pressure := self.reading("host_memory_pressure", rank)) >= BUSY_MEMORY:
            return f"tasks wait for memory {pressure:.0%} of the time"
        if (throttled := self.reading("host_throttled", rank)) >= BUSY_THROTTLED:
            return f"the CPU quota stops the process {throttled:.0%} of the time"
        measured = any(self.by_role.get(("host_pressure", each)) for each in range(rank, -1, -1))
        if measured and self.reading("host_pressure", rank) < NO_PRESSURE:
            return ""  # the load is of other CPUs, or of what waits for a disk
        load, cpus = self.reading("host_load", rank), self.reading("host_cpus", rank)
        return f"a load of {load:.1f} on {cpus:g} CPUs" if cpus and load >= BUSY_LOAD * cpus else ""

    def reading(self, role: str, rank: int) -> float:
        """Return the highest of the last readings of a machine, which its first rank records; 0 when not known."""
        for each in range(rank, -1, -1):
            found = self.by_role.get((role, each))
            if found and (values := found[0].values):
                return max(values[at] for at in range(-min(len(values), BUSY_READINGS), 0))
        return 0.0

    def evaluated(self, step: int) -> str:
        """Return a held-out metric that was recorded at a step; empty when there is none."""
        for each in self.held_out:
            if each.step == step or (each.step > step and step in each.steps):
                return each.key
        return ""

    def evaluations_before(self, step: int) -> int:
        """Return at how many of the last steps before this one held-out data was evaluated."""
        return max((sum(at < step for at in each.steps) for each in self.held_out), default=0)

    def is_sparse(self, series: Series) -> bool:
        """Return whether a series that the training itself logs is logged at every so many steps, or once an epoch."""
        if series.role.held_out or series.role.name not in _OF_MODELS or series.key.startswith("system/"):
            return False
        if series.spacing > MAX_APART or series.spacing == self.setting("batch_size"):
            return False
        return series.spacing >= SPARSE or 2 * self.evaluations_before(series.step + 1) >= len(series.steps) - 1

    def add(self, series: Series) -> None:
        """Add a series with a role."""
        self.series[series.key, series.rank] = series
        self.by_role.setdefault((series.role.name, series.rank), []).append(series)
        self.roles.add(series.role.name)
        if series.role.held_out and len(self.held_out) < MAX_HELD_OUT:
            self.held_out.append(series)

    def drop(self, gone: set[tuple[str, int]]) -> None:
        """Drop series, by key and rank."""
        self.series = {place: each for place, each in self.series.items() if place not in gone}
        self.held_out = [each for each in self.held_out if (each.key, each.rank) not in gone]
        for role in self.by_role:
            self.by_role[role] = [each for each in self.by_role[role] if (each.key, each.rank) not in gone]

    def of_role(self, name: str, rank: int, held_out: bool | None = None) -> list[Series]:
        """Return the series of a rank with a role."""
        found = self.by_role.get((name, rank), [])
        return [each for each in found if held_out is None or each.role.held_out == held_out]

    def beside(self, series: Series) -> list[Series]:
        """Return what the training logs of the same measure as a held-out series, or of its role where it logs none."""
        trained = self.of_role(series.role.name, series.rank, held_out=False)
        return [each for each in trained if measure(each.key) == measure(series.key)] or trained

    @property
    def reinforcement(self) -> bool:
        """Whether this looks like reinforcement learning, where the loss means little."""
        return not _POLICY.isdisjoint(self.roles) or self.roles >= _POLICY_TOO

    def configure(self, rank: int, config: Mapping[str, Any]) -> None:
        """Take the configuration of a rank, or a part of it; that of the lowest rank of the newest attempt counts."""
        who = self.attempt, -rank
        counts = who >= self.configured_by
        room = MAX_SETTINGS - len(self.config)
        if len(config) > room:
            config = dict([each for each in config.items() if each[0] in self.config or (room := room - 1) >= 0])
        self.config = {**self.config, **config} if counts else {**config, **self.config}
        self.configured_by = max(who, self.configured_by)
        self.settings.clear()

    def setting(self, *names: str) -> float | None:
        """Return a number from the configuration under any of the given names, the first preferred, at any depth."""
        if names not in self.settings:
            self.settings[names] = _find(self.config, names)
        found: float | None = self.settings[names]
        return found

    def words(self, *names: str) -> str:
        """Return the texts from the configuration under any of these names, in lower case, at any depth."""
        place = ("words", *names)
        if place not in self.settings:
            below = ((value, set(path)) for path, value in _settings(self.config, ()) if isinstance(value, str))
            self.settings[place] = " ".join(value.lower() for value, path in below if not path.isdisjoint(names))
        words: str = self.settings[place]
        return words


def judged_once(
    name: str,
    kind: Kind,
    roles: tuple[str, ...],
    judge: Callable[[Series, RunState], Finding | None],
    *,
    held_out: bool | None = False,
    each: Literal["value", "block"] = "block",
    usual: Callable[[Series, RunState, Values], int] = lambda series, run, ahead: 0,
    over: Callable[[Series, Finding], bool] | None = None,
) -> type[SeriesDetector]:
    """Make a detector of a series: `judge` is called until it returns a finding.

    `usual` counts how many of the next values, from the first on, it would find nothing in. `over` tells whether what
    came since shows that the finding was none: it is withdrawn then, and nothing is looked for any more.
    """

    class Once:
        KINDS: ClassVar[tuple[Kind, ...]] = (kind,)
        ROLES: ClassVar[tuple[str, ...]] = roles
        HELD_OUT: ClassVar[bool | None] = held_out
        EACH: ClassVar[Literal["value", "block"]] = each

        __slots__ = ("_done", "_found", "_run", "_series")

        def __init__(self, series: Series, run: RunState) -> None:
            self._series, self._run, self._done = series, run, False
            self._found: Finding | None = None

        def take(self) -> Finding | None:
            if self._done:
                return None
            if self._found is None:
                self._found = judge(self._series, self._run)
                self._done = self._found is not None and over is None
                return self._found
            if over is None or not over(self._series, self._found):
                return None
            self._done = True
            return kind.withdrawn(self._series, self._found.step or 0)

        def usual(self, ahead: Values) -> int:
            return len(ahead.steps) if self._done else usual(self._series, self._run, ahead)

        def learn(self, taken: Values) -> None:
            pass

    Once.__name__, Once.__module__ = name, judge.__module__
    return Once


_POLICY = frozenset(("reward", "clip_fraction", "explained_variance"))
_POLICY_TOO = frozenset(("kl", "entropy"))
"""One of these alone is of an autoencoder, a router or attention."""


_ASIDE = frozenset(("eval", "evaluation", "val", "validation", "test", "log", "logging", "save", "checkpoint"))
"""Sections of a configuration that are not about training."""
_DEEPEST = 8
_APART = re.compile(r"[./]")


def _find(config: Mapping[str, Any], names: Sequence[str]) -> float | None:
    """A number by the names it may have: `lr`, `{"optim": {"lr": ...}}`, `optim.lr`, `optim/lr`."""
    found: dict[tuple[int, int, int], float] = {}
    for path, value in _settings(config, ()):
        if path[-1] in names and _ASIDE.isdisjoint(path[:-1]) and (number := _number(value)) is not None:
            found[names.index(path[-1]), len(path), len(found)] = number
    return found[min(found)] if found else None


def _settings(config: Mapping[Any, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in config.items():
        path = (*above, *_APART.split(str(key).lower().replace("-", "_")))
        if isinstance(value, dict):
            yield from _settings(value, path) if len(path) < _DEEPEST else ()
        else:
            yield path, value


def _number(value: Any) -> float | None:
    """A number, also one that is written as text, as YAML reads 3e-4."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def leading(usual: Iterable[bool]) -> int:
    """Count the true ones before the first that is not."""
    return sum(1 for _ in takewhile(bool, usual))


def drop_rarest(entries: dict[K, V], most: int, uses: Callable[[V], float]) -> list[K]:
    """Drop the less used half when there are more entries than `most`, the oldest first; return the dropped keys.

    Ever new names neither fill the memory nor hide the usual ones.
    """
    if len(entries) <= most:
        return []
    rarest = sorted(entries, key=lambda key: uses(entries[key]))[: len(entries) - most // 2]
    for key in rarest:
        del entries[key]
    return rarest
