"""Too good: a loss that suddenly falls far below its trend, as when one batch is repeated or the target leaks."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.impossible_loss import is_perplexity
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, begun_at, jitter, roughness

TOO_GOOD = Kind(
    "too_good",
    "WARN",
    "the loader repeats one batch, or the target can be seen in the input",
    "Compare the inputs of two steps after that one; check the sampler's state, the shift of targets and the mask.",
    explains=("spike", "vanishing_gradients", "plateau", "constant", "overfit"),
    lasts=True,
    rules_out="ordinary progress: the fall is far below the trend",
)
LEAST = 100
AFTER = 40
"""The values since the fall began, at least."""
BEFORE = 60
APART, SPARSE = 4.0, 2
"""Of a loss that is logged at every so many steps, so many times fewer values tell that the target leaks."""
FEW_AFTER, FEW_BEFORE, FEW_LASTS = 12, 14, 5
"""Where each value counts, as many before and after."""
REPEATED, SAME = 0.3, 0.15
"""Of one repeated batch the loss varies by less than this share of its usual variation..."""
FALL, SMALL_FALL = math.log(1.25), math.log(1.12)
"""... while it falls at least this far below its trend."""
LEAKED = math.log(5.0)
"""A fall this far is too good without that."""
VARIES, STILL = 0.02, 0.05
"""A loss that varied by more than the first, in logarithms, and by less than this share of that, is of one batch."""
LEARNING = math.log(1.5)
"""A loss that fell so far within the values before is no measure of how it varies."""
MARGIN = 0.05
"""A loss of one batch is at most so far above its lowest, in logarithms."""
FLOOR_OF_PERPLEXITY = 0.1
"""A perplexity has this logarithm where hardly anything is left to learn."""
DROP = math.log(1.6)
"""A fall this far from one step to the next is too good."""
FAR, FAR_AT_ONCE, KINK, BLOCKS = math.log(3.0), math.log(2.0), 6.0, 12
"""A fall this far below the trend of so many blocks, most of it at once or not, and so much steeper, is too good..."""
NOISES = 6.0
"""... by so many times the noise of a block..."""
LEARNT = 0.1
"""... in a loss that had been falling before, by this much, in logarithms: one that begins late to learn is healthy."""
SETTLES = 0.7
"""A rate that fell to this share of what it was lets a loss settle."""
EASIER = (
    "other targets or masks count since then (padding, easy tokens), the loss is scaled otherwise, or the target leaks"
)


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last values, and the last blocks, with those before."""
    if not series.positive or series.count < (FEW_AFTER + FEW_BEFORE if series.block_size == 1 else LEAST // SPARSE):
        return None
    each_counts = series.block_size == 1 and series.spacing >= APART
    if each_counts and (found := _stuck(series, run, FEW_AFTER, FEW_BEFORE)) is not None:
        return found
    if series.count < LEAST or len(series.values) < AFTER + BEFORE:
        few = series.spacing >= APART and not run.reinforcement and series.role.name == "loss"
        return _by_few(series, run) if few else None
    if run.reinforcement or series.role.name != "loss":
        return _stuck(series, run)
    return _by_values(series, run) or _stuck(series, run) or _dropped(series, run) or _by_blocks(series, run)


def _by_values(series: Series, run: RunState, since: int = AFTER, width: int = BEFORE) -> Finding | None:
    """Compare the last values with the trend and the variation of those before."""
    back = -2 - since // series.block_size
    if len(series.scaled) < -back or series.scaled[-1] > series.scaled[back] - 0.5 * SMALL_FALL:
        return None
    values = series.on_scale(list(series.values))
    steps = list(series.steps)
    after, before = values[-since:], values[-since - width : -since]
    third = width // 3
    was, earlier = median(before[-third:]), median(before[:third])
    slope = max(earlier - was, 0.0) / (width - third)
    fall = was - median(after[-since // 4 :])
    below = fall - slope * since
    usual, now = roughness(before), roughness(after)
    least = SMALL_FALL if now < SAME * usual else FALL
    if below < max(least, 1.5 * usual) or run.changed(steps[-since - width], series.step, epochs=False):
        return None
    lowest = min(series.block_medians()[: -since // series.block_size], default=was)
    if median(after[-since // 4 :]) > lowest - 0.5 * least:
        return None
    repeated = since == AFTER and now < REPEATED * usual and usual > 0.005
    leaked = below > LEAKED and fall > 3 * (earlier - was) and _sudden(after, fall) and fall > 8 * usual
    if not repeated and (not leaked or (since < AFTER and _rate_falls(series, run, steps[-since]))):
        return None
    begun = steps[-since + begun_at(after, lambda value: value < was - usual)]
    if run.restaged(begun - 10, begun + 3):
        return None  # data that was seen before is better known
    text = f"{series.key} fell from {number(series.plain(was))} to {number(series.value)} since step {begun}"
    smooth = (
        f"{text}, and varies {number(usual / max(now, 1e-9), 2)} times less from step to step: one batch is repeated"
    )
    return TOO_GOOD.about(
        series,
        begun,
        smooth if repeated else f"{text}: far below its trend",
        series.band(was - slope * since, 4 * usual),
        weight=below,
    )


def _by_few(series: Series, run: RunState) -> Finding | None:
    """Judge a loss that is logged at every so many steps."""
    found = _fell_at_once(series, run)
    enough = series.count >= LEAST // SPARSE
    return found or (_by_values(series, run, AFTER // SPARSE, BEFORE // SPARSE) if enough else None)


def _fell_at_once(series: Series, run: RunState) -> Finding | None:
    """Find a fall from one of a few values to the next that lasts and that the held-out loss does not share."""
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    at = len(values) - FEW_LASTS
    before, after = values[at - FEW_BEFORE : at], values[at:]
    was, usual = median(before[-5:]), roughness(before)
    drop, steepest = was - median(after), max((a - b for a, b in itertools.pairwise(values[:at])), default=0.0)
    if drop < max(FAR, 8 * usual, 2 * steepest) or max(after) > min(values[:at]) - 0.5 * drop:
        return None
    if (
        before[-1] - after[0] < 0.7 * drop
        or _changed(series, run, FEW_LASTS + 5)
        or _shared(series, run, steps[at], drop)
    ):
        return None
    text = (
        f"{series.key} fell from {number(series.plain(was))} to {number(series.plain(after[0]))} at step {steps[at]}, "
        "from one value to the next, and stayed there"
    )
    return TOO_GOOD.about(series, steps[at], text, series.band(was, 6 * usual), cause=EASIER, weight=drop)


def _shared(series: Series, run: RunState, since: int, drop: float) -> bool:
    """Return whether a held-out loss fell as well, by a third of it: what is learnt is worth something."""
    for each in run.of_role("loss", series.rank, held_out=True):
        before = [value for step, value in zip(each.steps, each.values, strict=True) if step < since and value > 0]
        if before and 0 < each.value < before[-1] * math.exp(-drop / 3):
            return True
    return False


def _stuck(series: Series, run: RunState, since: int = AFTER, width: int = BEFORE) -> Finding | None:
    """Find a loss that no longer varies from step to step, wherever its level is: different batches differ."""
    lowest = min(series.block_medians(), default=math.inf)
    if math.log(series.value) > lowest + MARGIN and not run.reinforcement:
        return None  # a network that is dead varies little, too
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    before, after = values[-since - width : -since], values[-since + since // 4 :]
    usual, now = roughness(before), roughness(after)
    if usual < VARIES or now > STILL * usual or _changed(series, run, since + width):
        return None
    was, level = median(before), median(after[-10:])
    if median(before[: width // 3]) - median(before[-width // 3 :]) > max(LEARNING, 1.5 * usual):
        return None  # it varied because it fell, and has come to what is left to learn
    if level < FLOOR_OF_PERPLEXITY and is_perplexity(series.key):
        return None  # what is left of it above 1 varies as ever
    if level > was + usual or (values[-1] > lowest + min(usual, MARGIN) and not run.reinforcement):
        return None
    falls = median(b - a for a, b in itertools.pairwise(after))  # one batch is learnt by heart: smoothly
    if max(abs(b - a - falls) for a, b in itertools.pairwise(after)) > 0.3 * usual:
        return None
    begun = steps[-since + _settled(values[-since:], usual, falls)]
    text = (
        f"{series.key} varies {number(usual / max(now, 1e-9), 2)} times less from step to step since step {begun}, at "
        f"{number(series.value)}: one batch is repeated"
    )
    return TOO_GOOD.about(series, begun, text, series.band(was, 4 * usual), weight=usual / max(now, 1e-9))


def _settled(after: list[float], usual: float, falls: float) -> int:
    """Return from which value on neighbours hardly differ, but for their fall."""
    at = len(after) - 1
    while at > 0 and abs(after[at] - after[at - 1] - falls) < 0.3 * usual:
        at -= 1
    return at


def _dropped(series: Series, run: RunState) -> Finding | None:
    """Find a fall from one step to the next that lasts: no update of the weights does that."""
    values, steps = series.on_scale(list(series.values)), list(series.steps)
    at = min(range(-AFTER - 3, -AFTER + 4), key=lambda each: values[each] - values[each - 1])
    before, after = values[at - BEFORE + 5 : at], values[at:]
    was, usual = median(before[-5:]), roughness(before)
    drop = was - median(after[:5])
    if drop < max(DROP, 6 * usual) or values[at - 1] - values[at] < 0.6 * drop or sorted(after)[-3] > was - 0.5 * drop:
        return None
    if median(before[-25:-20]) - was > 0.3 * drop or _changed(series, run, AFTER + 15):
        return None
    text = (
        f"{series.key} fell from {number(series.plain(was))} to {number(series.plain(after[0]))} at step {steps[at]}, "
        "from one step to the next, and stayed there"
    )
    return TOO_GOOD.about(series, steps[at], text, series.band(was, 6 * usual), cause=EASIER, weight=drop)


def _by_blocks(series: Series, run: RunState) -> Finding | None:
    """Find a loss that fell slowly and, from one block on, far faster than ever since its first values."""
    middles = series.block_medians()
    for count in (AFTER // 5, AFTER // 3, AFTER // 2):
        if len(middles) < count + BLOCKS + 4 or series.block_size > 5:
            return None
        before, after = middles[-count - BLOCKS : -count], middles[-count:]
        was, half = median(before[-4:]), median(after[count // 2 - 1 : count // 2 + 2])
        slope = max((median(before[:4]) - was) / (BLOCKS - 4), series.noise() / BLOCKS, 0.002)
        fall = was - median(after[-3:])
        noise = max(series.noise(), jitter([*before, *after]))
        far = FAR_AT_ONCE if was - median(after[3:6]) > 0.7 * fall else FAR
        far = max(far, NOISES * noise)
        if fall - slope * count < far or was - half < 0.4 * fall or (was - half) / (count / 2) < KINK * slope:
            continue
        steepest = max(middles[at] - middles[at + count // 2] for at in range(len(middles) - count - count // 2))
        if median(after[-3:]) > min(middles[:-count]) - 0.5 * far:
            continue
        if (
            was - half < 2 * steepest
            or median(middles[:4]) - median(before[:4]) < LEARNT
            or _changed(series, run, 5 * count + BEFORE)
            or run.changed(series.firsts[-count - BLOCKS], series.step)
            or _rate_falls(series, run, series.firsts[-count])
        ):
            continue
        at = next(at for at in range(count) if max(after[at:]) < was - series.noise())
        begun, faster = series.firsts[-count + at], (was - half) / (count / 2) / slope
        text = (
            f"{series.key} fell from {number(series.plain(was))} to {number(series.value)} since step {begun}, "
            f"{number(faster, 2)} times as fast as before: far below its trend"
        )
        return TOO_GOOD.about(series, begun, text, series.band(was, 0.5), weight=fall)
    return None


def _changed(series: Series, run: RunState, values: int) -> bool:
    """Return whether the settings, a stage or an epoch changed within so many of the last values, or a rate rose."""
    steps = series.steps
    since = steps[-min(values, len(steps))]
    if run.changed(since, series.step):
        return True
    for rate in run.of_role("lr", series.rank):
        known = [value for step, value in zip(rate.steps, rate.values, strict=True) if step >= since]
        if known and (known[-1] > 1.3 * known[0] or any(b < 0.7 * a for a, b in itertools.pairwise(known))):
            return True
    return False


def _rate_falls(series: Series, run: RunState, since: int) -> bool:
    """Return whether a rate fell from half of its peak since a step: so annealed, a loss falls faster again."""
    for rate in run.of_role("lr", series.rank):
        known = [value for step, value in zip(rate.steps, rate.values, strict=True) if step >= since]
        if known and known[0] < 0.5 * rate.highest and known[-1] < SETTLES * known[0]:
            return True
    return False


def _sudden(after: list[float], fall: float) -> bool:
    quarter = len(after) // 4
    return (
        median(after[:quarter]) - median(after[quarter : 2 * quarter]) > 0.5 * fall
        or after[0] - min(after[:5]) > 0.5 * fall
    )


TooGood = judged_once("TooGood", TOO_GOOD, ("loss", "side_loss"), judge)
"""Watches one training loss."""
