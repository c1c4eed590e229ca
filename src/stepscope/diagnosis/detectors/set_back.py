"""Evaluations that are at once where they began, a reward that the evaluations lose, and a policy that never moved."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.level_shift import LEVEL_SHIFT
from stepscope.diagnosis.detectors.not_learning import NOT_LEARNING
from stepscope.diagnosis.detectors.reward_collapse import COLLAPSE
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.roles import measure
from stepscope.diagnosis.series_history import Series, roughness, spread, sure_trend, trend

EVALUATIONS = 3
"""So many evaluations before show what had been learnt."""
LOST, LEAST, NOISES = 0.5, 0.25, 5.0
"""At once this share of it is lost, so much of a positive loss in logarithms, and so many times the noise..."""
BESIDE, AFTER, BEFORE = 0.3, 3, 8
"""... and of so many values of the training after as many before this share of what the evaluations lost."""
LEVEL = 0.2
"""A reward has lost this share of its level, too."""
_REPLACED = (
    "the weights were replaced or damaged: loaded from an early checkpoint, made anew, or averaged with others; the "
    "data alone would not take both to where they began"
)


def _worse(series: Series, values: list[float]) -> list[float]:
    """Return values so that more is worse: losses as logarithms where they can be."""
    if series.role.name == "loss":
        return series.on_scale(values) if series.positive else values
    return [-value for value in values]


def judge_set_back(series: Series, run: RunState) -> Finding | None:
    """Find an evaluation that is back near the first one, at once, with the training beside it."""
    values, steps = _worse(series, list(series.values)), list(series.steps)
    for at in (len(values) - 1, len(values) - 2):
        if at < EVALUATIONS:
            return None
        before, was, jump = values[:at], values[at - 1], values[at] - values[at - 1]
        gained = max(before[:2]) - min(before)
        least = LEAST if series.role.name == "loss" and series.positive else 0.0
        if gained <= 0 or was - min(before) > 0.25 * gained or jump < max(LOST * gained, least):
            continue
        if series.role.name == "reward" and jump < LEVEL * abs(was):
            continue
        if jump < NOISES * roughness(before) or run.raised(steps[at - 1], steps[at], jump):
            continue
        beside = _beside(series, run, steps[at - 1], jump)
        if beside is None or beside[1] > steps[at]:
            continue
        other, begun = beside
        shown, now = list(series.values)[at - 1], list(series.values)[at]
        text = (
            f"{series.key} went from {number(shown)} to {number(now)} between steps {steps[at - 1]} and {steps[at]}, "
            f"as if little had been learnt, and {other} with it at step {begun}"
        )
        kind = LEVEL_SHIFT if series.role.name == "loss" else COLLAPSE
        band = (min(shown, min(series.values)), max(shown, min(series.values)))
        return kind.about(series, begun, text, band, cause=_REPLACED, weight=jump)
    return None


def _beside(series: Series, run: RunState, since: int, jump: float) -> tuple[str, int] | None:
    """Return a metric of the training that got as much worse after a step, and from which step on."""
    for each in run.beside(series):
        if each.positive != series.positive and series.role.name == "loss":
            continue
        steps, values = list(each.steps), _worse(each, list(each.values))
        split = next((place for place, step in enumerate(steps) if step > since), len(steps))
        before = values[max(split - BEFORE, 0) : split]
        if len(before) < AFTER:
            continue
        was, noise = median(before), spread(before)
        for place in range(split, len(values) - AFTER + 1):
            after = values[place : place + AFTER]
            if min(after) - was > max(BESIDE * jump, 3 * noise) and min(after) > max(before):
                return each.key, steps[place]
    return None


REWARDS, FALLING, TURNED = 8, 0.75, 5
"""So many evaluations fall so steadily (Kendall's tau) from the first on, or so many after the best."""
NEAR = 0.15
"""It was near its best where it had lost no more than this share of it all."""
SHARE = 0.4
"""A reward that turned has lost this share of what had been gained."""
_WRONG_WAY = "the sign of the reward or of the policy's loss is wrong, or what is rewarded is not what is evaluated"


def judge_reward(series: Series, run: RunState) -> Finding | None:
    """Find an evaluated reward that falls steadily, from the first evaluation on or after it had risen."""
    values, steps = list(series.values), list(series.steps)
    if len(values) < TURNED + EVALUATIONS or series.same > 3:
        return None
    best = max(range(len(values)), key=values.__getitem__)
    before, since = values[: best + 1], values[best:]
    lost = values[best] - median(since[-EVALUATIONS:])
    noise = min(roughness(values), max(roughness(before), roughness(since)))
    if len(since) < TURNED or lost < max(NOISES * noise, LEVEL * abs(values[best])) or trend(since) > -FALLING:
        return None
    if best < EVALUATIONS:
        if len(since) < REWARDS or lost < SHARE * abs(values[best]):
            return None
        begun, how = series.first_step, "has fallen since the first evaluation"
    elif lost < SHARE * (values[best] - min(before)) or trend(before) < FALLING:
        return None
    top = max(place for place, value in enumerate(values) if values[best] - value < NEAR * lost)
    if top >= EVALUATIONS:
        begun, how = steps[top], f"was near its best until step {steps[top]} and has fallen since"
    text = f"{series.key} {how}, from {number(values[best])} to {number(series.value)} in {len(since)} evaluations"
    for other in run.of_role("reward", series.rank, held_out=False):
        if len(other.middles) >= EVALUATIONS and sure_trend(list(other.middles)) > 3:
            text += f", while {other.key} rises"
            break
    return COLLAPSE.about(series, begun, text, (min(before), values[best]), value=series.value, cause=_WRONG_WAY)


UPDATES, MOVES, UNSURE = 60, 0.02, 2.0
"""In so many values an entropy moves by less than this share, and no trend of a reward is surer than this."""
_UNMOVED = "the policy's weights do not change, or nothing tells it which actions are better: look at advantages"


def judge_policy(series: Series, run: RunState) -> Finding | None:
    """Find a policy that is as random as at first after many updates, while no reward rises."""
    if series.count < UPDATES or not series.positive or series.lowest < (1 - MOVES) * series.highest:
        return None
    if not series.distinct or run.resumed is not None:
        return None
    rewards = run.of_role("reward", series.rank)
    if not any(each.count >= UPDATES for each in rewards):
        return None
    if any(len(each.middles) >= EVALUATIONS and abs(sure_trend(list(each.middles))) > UNSURE for each in rewards):
        return None
    reward = next(each for each in rewards if each.count >= UPDATES)
    text = (
        f"{series.key} has stayed between {number(series.lowest)} and {number(series.highest)} in {series.count} "
        f"values, and {reward.key} does not rise: the policy is as random as at first"
    )
    band = (0.0, 0.9 * series.highest)
    return NOT_LEARNING.about(series, series.first_step, text, band, severity="WARN", cause=_UNMOVED)


STILL, FLAT, VALUES = 4, 0.006, 30
"""So many evaluations, and a training loss with so many values, differ by less than this in logarithms."""


def _moves(series: Series, found: Finding) -> bool:
    """Return whether the entropy has moved since."""
    return series.lowest < (1 - MOVES) * series.highest


def judge_still(series: Series, run: RunState) -> Finding | None:
    """Find a held-out loss that hardly differs from the first evaluation, with a training loss that stands still."""
    if series.count < STILL or not series.positive or run.reinforcement or run.resumed is not None:
        return None
    values = series.on_scale(list(series.values))
    if max(values) - min(values) > FLAT or not series.distinct or len(values) < series.count:
        return None
    known = run.of_role("accuracy", series.rank)
    if any(each.middles and each.highest <= 1 and median(each.middles[-8:]) > KNOWS for each in known):
        return None
    for each in run.of_role("loss", series.rank, held_out=False):
        if measure(each.key) != measure(series.key) or each.count < VALUES or not each.positive:
            continue
        middles = each.block_medians()
        first, now = median(middles[:4]), median(middles[-4:])
        if abs(first - now) < FLAT and max(middles) - min(middles) < 4 * FLAT:
            text = (
                f"{series.key} went from {number(series.first_value)} to {number(series.value)} in {series.count} "
                f"evaluations, and {each.key} stands still at {number(each.value)}"
            )
            band = (0.0, 0.9 * series.first_value)
            return NOT_LEARNING.about(series, each.first_step, text, band, severity="WARN")
    return None


KNOWS = 0.8
"""With such an accuracy what there is to learn is known."""
SetBack = judged_once("SetBack", LEVEL_SHIFT, ("loss",), judge_set_back, held_out=True, each="value")
RewardSetBack = judged_once("RewardSetBack", COLLAPSE, ("reward",), judge_set_back, held_out=True, each="value")
EvaluatedReward = judged_once("EvaluatedReward", COLLAPSE, ("reward",), judge_reward, held_out=True, each="value")
UnmovedPolicy = judged_once(
    "UnmovedPolicy", NOT_LEARNING, ("entropy",), judge_policy, held_out=False, each="value", over=_moves
)
StandsStill = judged_once("StandsStill", NOT_LEARNING, ("loss",), judge_still, held_out=True, each="value")
"""Watch one held-out metric, or an entropy, together with those of the training."""
