"""The entropy of a policy: one that collapses no longer explores, one that explodes forgets what it learnt."""

from statistics import median
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, jitter, trend

COLLAPSE = Kind(
    "entropy_collapse",
    "ERROR",
    "the policy has become deterministic",
    "Raise the entropy bonus, or lower the learning rate.",
    explains=("kl_blowup", "clip_zero", "dead_environment", "spike"),
    lasts=True,
)
EXPLOSION = Kind(
    "entropy_explosion",
    "ERROR",
    "the policy unlearns and becomes random: an entropy bonus or learning rate that is too high, or damaged weights",
    "Lower the entropy bonus and the learning rate; go back to a checkpoint before that step and read samples.",
    explains=(
        "reward_collapse",
        "spike",
        "level_shift",
        "kl_blowup",
        "truncation",
        "exploding_gradients",
        "divergence",
    ),
    lasts=True,
)
LEFT = 0.12
"""An entropy has collapsed below this share of its first values..."""
ROW = 8
"""... for this many values, within a small part of the run."""
LEAST = 30
AT_ONCE, SOME = 8.0, 0.1
"""An entropy whose first value was so many times what its first blocks are, and not small, fell at once."""
GAINED, BEST = 0.25, 0.8
"""A reward that rose by the first share of its range since then, above the second, was learnt meanwhile."""
TIMES = 2.0
"""An entropy has exploded above this many times its level..."""
RISE = 0.25
"""... and by this much, in nats..."""
ON, NATS, STEADY = 24, 0.5, 0.95
"""In the second half of so many blocks it rose by so much, so steadily (Kendall's tau)."""
WIDTH = 4
"""... for this many blocks."""
DEAD = 8
FORGETS, FALLEN, AGAIN = 8, 0.5, 0.9
"""From so many blocks on: it was below the first share of its first level, and is above the second again."""


class Entropy:
    """Watches the entropy of one discrete policy; a loss that is the negative entropy is turned around."""

    KINDS: ClassVar[tuple[Kind, ...]] = (COLLAPSE, EXPLOSION)
    ROLES: ClassVar[tuple[str, ...]] = ("entropy",)
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = ("_at_once", "_begun", "_blocks", "_early", "_low", "_reported", "_run", "_series", "_sign")

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run = series, run
        self._reported: set[str] = set()
        self._early = 0.0
        """The median of the first values; 0 while it is not known."""
        self._sign = 1.0
        self._at_once = False
        self._begun: int | None = None
        """Since when it has collapsed, while no reward shows that something was learnt by it."""
        self._low = self._blocks = 0

    def take(self) -> Finding | None:
        """Look for a fall to almost zero within a small part of the run, and for a rise far above its level."""
        series = self._series
        if not self._early:
            if len(series.middles) >= 3:
                self._sign = -1.0 if series.highest <= 0 else 1.0
                self._early = max(self._sign * median(series.middles[:3]), 0.0)
                first = self._sign * series.first_value
                self._at_once = first > max(AT_ONCE * self._early, SOME)
                self._early = first if self._at_once else self._early
            return None
        if len(series.middles) != self._blocks:
            self._blocks = len(series.middles)
            found = self._exploded() or self._rises_on() or self._forgets()
            if found is not None:
                return found
            if self._begun is not None and self._has_learnt_since(self._begun):
                begun, self._begun = self._begun, None
                return COLLAPSE.withdrawn(series, begun)
        if self._sign * series.value > LEFT * self._early:
            self._low = 0
            return None
        self._low += 1
        if self._low < ROW or "low" in self._reported or series.count < LEAST or self._negative():
            return None
        return self._collapsed()

    def _negative(self) -> bool:
        """Return whether this is a differential entropy, which may be negative."""
        return (self._series.lowest < -1e-3) if self._sign > 0 else (self._series.highest > 1e-3)

    def _collapsed(self) -> Finding | None:
        series = self._series
        values, steps = [self._sign * value for value in series.values], list(series.steps)
        high = [at for at, value in enumerate(values) if value > 0.5 * self._early]
        slowest = 0.5 if self._reward_fell() else 0.25
        if self._at_once and not self._reward_is_no_better():
            return None  # a task that is learnt in a few steps
        if not high or (not self._at_once and len(values) - ROW - high[-1] > max(slowest * series.count, 12)):
            return None
        begun, early = steps[high[-1]], self._early
        if self._has_learnt_since(begun):
            return None
        self._reported.add("low")
        self._begun = begun
        text = (
            f"{series.key} collapsed from {number(self._sign * early)} to {number(series.value)} since step {begun}: "
            f"the policy no longer explores"
        )
        band = sorted((self._sign * 0.3 * early, self._sign * early))
        return COLLAPSE.about(series, begun, text, (band[0], band[1]))

    def _reward_fell(self) -> bool:
        """Return whether a reward has lost a quarter of its gain: a policy that has learnt settles at its best."""
        for each in self._run.of_role("reward", self._series.rank, held_out=False):
            middles = each.middles
            if len(middles) > WIDTH and max(middles) - median(middles[-WIDTH:]) > 0.25 * (max(middles) - min(middles)):
                return True
        return False

    def _has_learnt_since(self, begun: int) -> bool:
        """Return whether a reward rose by much of its range while the entropy fell, to its best: the task is learnt."""
        for each in self._run.of_role("reward", self._series.rank, held_out=False):
            before = [middle for middle, last in zip(each.middles, each.lasts, strict=True) if last <= begun]
            if len(before) < len(each.middles) and before:
                wide, now = each.highest - each.lowest, median(each.middles[-2:])
                if now - median(before[-2:]) > GAINED * wide and now > each.lowest + BEST * wide:
                    return True
        return False

    def _reward_is_no_better(self) -> bool:
        """Return whether a reward is known and is no higher than at first."""
        known = [each for each in self._run.of_role("reward", self._series.rank, held_out=False) if each.middles]
        return bool(known) and all(median(each.middles[-WIDTH:]) <= each.first_value for each in known)

    def _rises_on(self) -> Finding | None:
        """Detect an entropy that has risen steadily for half of the run, while the reward got no better."""
        series, count = self._series, len(self._series.middles)
        if count < ON or count % WIDTH or "high" in self._reported:
            return None
        half = [self._sign * middle for middle in series.middles[count // 2 :]]
        if half[-1] - half[0] < NATS or trend(half) < STEADY or not self._rewards_stay(series.firsts[count // 2]):
            return None
        self._reported.add("high")
        was, became = number(self._sign * half[0]), number(series.value)
        text = (
            f"{series.key} has risen steadily from {was} to {became} since step {series.firsts[count // 2]}, and the "
        )
        text += "reward has not: the policy becomes random"
        return EXPLOSION.about(series, series.firsts[count // 2], text, (min(half), half[0]))

    def _forgets(self) -> Finding | None:
        """Detect an entropy that had fallen and is at its first level again, while a reward lost what it gained."""
        series = self._series
        if "high" in self._reported or len(series.middles) < FORGETS or self._negative():
            return None
        middles = [self._sign * middle for middle in series.middles]
        lowest = min(range(len(middles)), key=middles.__getitem__)
        was, became = middles[lowest], min(middles[-2:])
        if was > FALLEN * self._early or became < AGAIN * self._early or became - was < NATS or not self._reward_fell():
            return None
        if any(each.same > DEAD for each in self._run.of_role("reward", series.rank, held_out=False)):
            return None  # nothing is rewarded any more, and what there is to gain is the entropy
        self._reported.add("high")
        at = next(at for at in range(lowest + 1, len(middles)) if middles[at] > was + 0.1 * (became - was))
        low = was + 0.1 * (became - was)
        begun = max(series.firsts[at], series.begun(lambda value: self._sign * value >= low))
        text = (
            f"{series.key} had fallen from {number(self._sign * self._early)} to {number(self._sign * was)} and has "
            f"risen to {number(series.value)} since step {begun}: the policy is as random as at first"
        )
        band = sorted((self._sign * 0.5 * was, self._sign * 2.0 * was))
        return EXPLOSION.about(series, begun, text, (band[0], band[1]), weight=became / max(was, 1e-9))

    def _rewards_stay(self, since: int) -> bool:
        """Return whether a reward is known and none has risen since a step."""
        known = [
            [middle for first, middle in zip(each.firsts, each.middles, strict=True) if first >= since]
            for each in self._run.of_role("reward", self._series.rank, held_out=False)
        ]
        return bool(known) and all(len(each) > WIDTH and trend(each) < 0.2 for each in known)

    def _exploded(self) -> Finding | None:
        series = self._series
        if len(series.middles) < 3 * WIDTH + 2 or "high" in self._reported or self._negative():
            return None
        if self._sign * series.middles[-1] < self._sign * 1.5 * series.middles[-WIDTH - 3]:
            return None
        middles = [self._sign * middle for middle in series.middles]
        after, before = middles[-WIDTH:], middles[-3 * WIDTH - 2 : -WIDTH - 2]
        was, became = median(before), median(after)
        noise = max(jitter(before), 1e-6)
        if became < TIMES * was + RISE or min(after) < max(before) + 4 * noise or min(after) < 1.5 * was:
            return None
        self._reported.add("high")
        at = next(at for at in range(WIDTH + 3, 0, -1) if middles[-at] > was + 0.2 * (became - was))
        text = (
            f"{series.key} rose from {number(self._sign * was)} to {number(self._sign * became)} since step "
            f"{series.firsts[-at]}: the policy becomes random"
        )
        band = sorted((self._sign * 0.5 * was, self._sign * 1.5 * was))
        return EXPLOSION.about(series, series.firsts[-at], text, (band[0], band[1]), weight=became / max(was, 1e-9))
