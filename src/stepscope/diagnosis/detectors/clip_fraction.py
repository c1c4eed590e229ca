"""Clip fraction: a fraction of clipped updates that stays very high or at zero."""

from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

SATURATED = Kind(
    "clip_saturated",
    "WARN",
    "updates are larger than the clip range",
    "Increase clip_epsilon or reduce the learning rate.",
)
ZERO = Kind(
    "clip_zero",
    "WARN",
    "updates are too small to matter",
    "Reduce clip_epsilon or raise the learning rate; check that the optimizer still updates the weights.",
)
HIGH, NONE = 0.5, 1e-3
ROW = 20
FROM_START = 60
GOOD = (0.1, 0.3)
OFTEN, FAR = 0.25, 0.05
"""In the first `FROM_START` values so much was clipped, and the KL of an update was so large."""


class ClipFraction:
    """Watches one fraction of clipped updates."""

    KINDS: ClassVar[tuple[Kind, ...]] = (SATURATED, ZERO)
    ROLES: ClassVar[tuple[str, ...]] = ("clip_fraction",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_high", "_low", "_reported", "_run", "_series")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._high = self._low = 0
        self._reported: set[str] = set()

    def take(self) -> Finding | None:
        """Look for a run of very high or zero values."""
        value = self._series.value
        if self._series.count == FROM_START and not self._reported and (found := self._from_start()) is not None:
            return found
        if value > 0.8 * HIGH:
            self._low, self._high = 0, self._high + 1
            return self._saturated() if self._high >= ROW and "high" not in self._reported else None
        if value < NONE:
            self._high, self._low = 0, self._low + 1
            return self._zero() if self._low >= ROW and "zero" not in self._reported else None
        self._high = self._low = 0
        return None

    def _saturated(self) -> Finding | None:
        series = self._series
        level = median(list(series.values)[-ROW:])
        if level <= HIGH:
            return None
        self._reported.add("high")
        begun = series.steps[-ROW]
        text = f"{series.key} has been around {number(level)} since step {begun}: most updates are clipped"
        return SATURATED.about(series, begun, text, GOOD)

    def _from_start(self) -> Finding | None:
        """Detect updates that have always left the policy that was sampled, by the share that is clipped and the KL."""
        series = self._series
        level, far = median(series.middles), [each for each in self._run.of_role("kl", series.rank) if each.middles]
        if level < OFTEN or not far or min(median(each.middles) for each in far) < FAR:
            return None
        self._reported.add("high")
        text = (
            f"{series.key} has been around {number(level)} from the start, and {far[0].key} around "
            f"{number(median(far[0].middles))}: each update leaves the policy that was sampled"
        )
        return SATURATED.about(series, series.first_step, text, GOOD)

    def _zero(self) -> Finding | None:
        series = self._series
        usual = median(series.middles) if series.middles else 0.0
        if usual > 0.02:
            begun = series.steps[-ROW]
            since = f"since step {begun}, usually {number(usual)}"
        elif series.count >= FROM_START and series.highest < NONE and self._several_updates():
            begun, since = series.first_step, "from the start"
        else:
            return None
        self._reported.add("zero")
        return ZERO.about(series, begun, f"{series.key} has been 0 {since}: the policy hardly changes", GOOD)

    def _several_updates(self) -> bool:
        """Return whether a batch is used for several updates: with one, the ratio is 1 and nothing can be clipped."""
        return (
            self._run.setting("ppo_epochs", "num_ppo_epochs", "n_epochs", "num_iterations", "update_epochs") or 1
        ) > 1
