"""The policy of reinforcement learning: KL, entropy, clipping, the value function, and rewards that mislead."""

import math
from statistics import median

from stepscope.diagnosis.detector import Point, RunState, about
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series import Series, jitter, spread

KL_NORMAL, KL_CRITICAL = 0.05, 0.1
KL_TIMES = 5.0
KL_SIGMAS = 10.0
ENTROPY_LEFT = 0.12
CLIP_HIGH = 0.5
CLIP_ROW = 20
VALUE_ROW = 30


class Kl:
    """Watches one KL divergence; those estimated around zero too."""

    def __init__(self) -> None:
        self._row: list[Point] = []
        self._usual: list[float] = []
        self._said_at = -(10**9)

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a value against the last ones that were usual."""
        usual = self._usual
        if len(usual) < 10:
            usual.append(point.value)
            return None
        middle, wide = median(usual), max(spread(usual), jitter(usual), 1e-4)
        target = run.setting("target_kl", "kl_target") or 0.0
        limit = max(KL_TIMES * abs(middle), middle + KL_SIGMAS * wide, 1.5 * max(usual), 2 * target, KL_NORMAL)
        if abs(point.value) <= limit:
            self._row = []
            usual.append(point.value)
            del usual[:-64]
            return None
        self._row.append(point)
        extreme = abs(point.value) > 4 * limit
        if len(self._row) > 12:
            usual.extend(each.value for each in self._row)
            self._row = []
        if not (extreme or len(self._row) == 3) or point.step - self._said_at < 50 * series.spacing:
            return None
        self._said_at = point.step
        begun = self._row[0].step
        critical = abs(point.value) > KL_CRITICAL
        return about(
            series,
            point,
            "kl_blowup",
            "ERROR" if critical else "WARN",
            begun,
            f"{series.key} rose to {number(point.value)} at step {begun}, usually {number(middle)}",
            (middle - KL_SIGMAS * wide, limit),
            "the policy moves too far in one update",
            "Lower the learning rate or the number of epochs per batch; stop updates early at a target KL.",
        )


class Entropy:
    """Watches one entropy of a policy that chooses among actions."""

    def __init__(self) -> None:
        self._said = False

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a fall to almost nothing within a small part of the run."""
        if self._said or series.count < 30 or series.first_value <= 0 or series.lowest < -1e-3:
            return None
        values, steps = list(series.values), list(series.steps)
        early = median([block.middle for block in series.blocks[:3]] or values[:10])
        recent = values[-8:]
        if early <= 0 or max(recent) > ENTROPY_LEFT * early:
            return None
        high = [at for at, value in enumerate(values) if value > 0.5 * early]
        fell = len(values) - 8 - (high[-1] if high else 0)
        sudden = bool(high) and fell <= max(0.25 * series.count, 12)
        if not sudden:
            return None
        self._said = True
        begun = steps[high[-1]]
        return about(
            series,
            point,
            "entropy_collapse",
            "ERROR",
            begun,
            f"{series.key} collapsed from {number(early)} to {number(point.value)} since step {begun}: "
            f"the policy explores no more",
            (0.3 * early, early),
            "the policy has become deterministic",
            "Raise the entropy bonus, or lower the learning rate.",
        )


class ClipFraction:
    """Watches one fraction of clipped updates."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a fraction that stays very high, or falls to nothing."""
        recent = list(series.values)[-CLIP_ROW:]
        if len(recent) < CLIP_ROW:
            return None
        begun = list(series.steps)[-CLIP_ROW]
        if min(recent) > CLIP_HIGH * 0.8 and median(recent) > CLIP_HIGH and "clip_high" not in self._said:
            self._said.add("clip_high")
            return about(
                series,
                point,
                "clip_saturated",
                "WARN",
                begun,
                f"{series.key} has been around {number(median(recent))} since step {begun}: most updates are clipped",
                (0.1, 0.3),
                "updates are larger than the clip range",
                "Increase clip_epsilon or reduce the learning rate.",
            )
        usual = median([block.middle for block in series.blocks]) if series.blocks else 0.0
        if max(recent) < 1e-3 and usual > 0.02 and "clip_zero" not in self._said:
            self._said.add("clip_zero")
            return about(
                series,
                point,
                "clip_zero",
                "WARN",
                begun,
                f"{series.key} has been 0 since step {begun}, usually {number(usual)}: the policy hardly changes",
                (0.1, 0.3),
                "updates are too small to matter",
                "Reduce clip_epsilon or raise the learning rate; check that the optimizer still steps.",
            )
        if max(recent) < 1e-3 and series.count >= 60 and series.highest < 1e-3 and "clip_zero" not in self._said:
            self._said.add("clip_zero")
            return about(
                series,
                point,
                "clip_zero",
                "WARN",
                series.first_step or 0,
                f"{series.key} has been 0 from the start: the policy hardly changes",
                (0.1, 0.3),
                "updates are too small to matter",
                "Reduce clip_epsilon or raise the learning rate.",
            )
        return None


class ExplainedVariance:
    """Watches how well a value function predicts returns."""

    def __init__(self) -> None:
        self._said = False

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a value function that is no better than a constant, after the time it needs."""
        recent = list(series.values)[-VALUE_ROW:]
        if self._said or series.count < 2 * VALUE_ROW:
            return None
        earlier = [block.middle for block in series.blocks]
        best = max(earlier, default=0.0)
        lost = best > 0.4 and median(recent) < 0.15 and sum(v < 0.3 for v in recent) > 0.9 * len(recent)
        never = series.count > 4 * VALUE_ROW and best < 0.1 and median(recent) < 0.05
        if not (lost or never):
            return None
        self._said = True
        begun = _last_above(series, 0.3) if lost else series.first_step or 0
        said = (
            f"fell from {number(best)} to {number(median(recent))} since step {begun}"
            if lost
            else f"has stayed at {number(median(recent))}"
        )
        return about(
            series,
            point,
            "value_function",
            "WARN",
            begun,
            f"{series.key} {said}: the value function predicts nothing",
            (0.5, 1.0),
            "the value function does not learn",
            "Raise its learning rate or its share of the loss; check returns and their scale.",
        )


def _last_above(series: Series, limit: float) -> int:
    steps = [step for step, value in zip(series.steps, series.values, strict=True) if value > limit]
    return steps[-1] if steps else series.steps[0]


class Rewards:
    """Watches one reward beside lengths and KL."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def take(self, series: Series, point: Point, run: RunState) -> Finding | None:
        """Judge a reward that does not move at all, or rises together with what it should not need."""
        if "dead_environment" not in self._said and series.same == 40 and series.distinct and series.count > 60:
            self._said.add("dead_environment")
            begun = list(series.steps)[-40]
            return about(
                series,
                point,
                "dead_environment",
                "ERROR",
                begun,
                f"{series.key} has been exactly {number(point.value)} since step {begun}",
                (series.lowest, series.highest),
                "the environment or the reward function no longer answers",
                "Look at one episode; check the environment's process and the reward's inputs.",
            )
        if not point.block or "reward_hacking" in self._said or len(series.blocks) < 14:
            return None
        found = self._hacking(series, point, run)
        if found:
            self._said.add("reward_hacking")
        return found

    def _hacking(self, series: Series, point: Point, run: RunState) -> Finding | None:
        lengths = [s for s in run.of_role("length", series.rank) if len(s.blocks) >= 12]
        kls = [s for s in run.of_role("kl", series.rank) if len(s.blocks) >= 12]
        rewards = [block.middle for block in series.blocks]
        if not lengths or not kls or not _rises(rewards):
            return None
        longer, farther = _growth(lengths[0]), _growth(kls[0])
        if longer is None or farther is None or longer[0] < 1.6 or farther[0] < 2.5:
            return None
        begun = min(longer[1], farther[1])
        return about(
            series,
            point,
            "reward_hacking",
            "WARN",
            begun,
            f"{series.key} rises since step {begun} together with {lengths[0].key} ({longer[0]:.2g} "
            f"times) and {kls[0].key} ({farther[0]:.2g} times)",
            (min(rewards), max(rewards)),
            "the policy exploits the reward, for instance by longer answers",
            "Read samples of those steps; penalize length, raise the KL penalty.",
        )


def _rises(values: list[float]) -> bool:
    noise = max(jitter(values), 1e-9)
    return median(values[-3:]) - median(values[len(values) // 2 - 2 : len(values) // 2 + 1]) > 3 * noise


def _growth(series: Series) -> tuple[float, int] | None:
    """How many times a series grew over its level of the first half, since when; None where "
    "it was growing all along."""
    middles = [block.middle for block in series.blocks]
    half = middles[: len(middles) // 2]
    level, noise = median(half), max(jitter(middles), 1e-9)
    if level <= 0:
        return None
    above = next((at for at in range(len(middles)) if all(v > level + 4 * noise for v in middles[at:])), None)
    if above is None or above < 4:
        return None
    before = median(middles[max(above - 8, 0) : above])
    return (median(middles[-2:]) / before if before > 0 else math.inf), series.blocks[above].first
