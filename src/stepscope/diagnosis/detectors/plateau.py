"""Plateau: a loss that stops falling abruptly, where a healthy one slows down."""

import itertools
import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, trend

_FROZEN = "parameters that no longer change (frozen, the optimizer is not called, the learning rate collapsed)"
_FLOOR = "a floor of the data that was reached at once, or gradients that vanish"
PLATEAU = Kind(
    "plateau",
    "WARN",
    f"in this order: {_FROZEN}; {_FLOOR}",
    "Compare the norm of the parameters before and after a step; check the learning rate and gradient norm since then.",
    explains=("plateau",),
    lasts=True,
    rules_out="a floor that is approached gradually: the fall stopped at once",
)
MIN_VALUES = 150
MIN_BLOCKS = 24
PLAIN_FALL = 0.45
"""The fall just before the stop, as a share of the fall before it; a loss that reaches its floor slows down more."""
EVERY = 8
"""The trend is evaluated after every this many blocks."""
FLAT = 0.35
"""A loss that still falls or rises steadily after the stop (Kendall's tau) has not stopped."""
HALFWAY = 0.22
"""Half way to the stop this share of the fall is still to come; less where a floor is reached exponentially."""
LEARNT = math.log(8)
"""A loss that fell this far, in logarithms, may have reached the noise of its data: that it stops is no fault."""
FELL_ON, LATER = 0.12, 8
"""A plateau is over when the last blocks, so many of them, are lower by this share of the fall that was owed."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Test every block as the point at which the fall may have stopped."""
    middles = series.block_medians()
    if len(middles) % EVERY or len(middles) < MIN_BLOCKS or series.count < MIN_VALUES:
        return None
    if series.positive and max(series.scaled) - middles[-1] > LEARNT:
        return None
    noise, tail = series.noise(), middles[-max(10, len(middles) // 3) :]
    if run.reinforcement or max(tail) - min(tail) >= 7 * noise or _rate_is_zero(series, run):
        return None
    best = max(((owed, at) for at, owed in _stops(middles, noise)), default=None)
    if best is None:
        return None
    firsts = list(series.firsts)[-len(middles) :]
    if not _stops_on_a_plain_scale(series.middles[-len(middles) :], best[1]):
        return None
    if run.changed(firsts[best[1] // 4], series.step, epochs=False):  # a warm-up that was over before is no reason
        return None
    begun = firsts[best[1]]
    if _rate_rose(series, run, firsts[best[1] // 4], begun):
        return None  # it fell ever faster, until it was at its floor
    if _weighs_more(series, run, begun):
        return None  # a part of it counts more and more, so that the sum stays
    text = f"{series.key} fell steadily and then stopped at step {begun}, at {number(series.plain(middles[-1]))}"
    found, cause = _gradients(series, run, begun)
    band = series.band(middles[-1] - best[0] / 2, best[0] / 2)
    return PLATEAU.about(series, begun, text + found, band, cause=cause, weight=best[0])


def _gradients(series: Series, run: RunState, begun: int) -> tuple[str, str]:
    """Return what the gradient norm says about a stop, and the candidates in the order that follows from it."""
    for each in run.of_role("grad_norm", series.rank):
        blocks = list(zip(each.lasts, each.middles, strict=True))
        before = [middle for last, middle in blocks if last < begun][-6:]
        after = [middle for last, middle in blocks if last >= begun]
        if len(before) < 3 or len(after) < 3 or min(before) <= 0:
            continue
        share = median(after) / median(before)
        if share < FALLEN:
            return f", and {each.key} fell to {share:.0%} of what it was", f"in this order: {_FLOOR}; {_FROZEN}"
        if share < 1 / LEVEL:
            return f", while {each.key} stays at {number(median(after))}", ""
    return "", ""


FALLEN, LEVEL = 0.5, 0.7
"""Shares of the gradient norm before the stop: below the first it has fallen, near 1 it has not changed."""


def _rate_is_zero(series: Series, run: RunState) -> bool:
    return any(each.value == 0 for each in run.of_role("lr", series.rank))


def _rate_rose(series: Series, run: RunState, first: int, last: int) -> bool:
    """Return whether a learning rate rose all the time that the loss fell, as in the first part of one cycle."""
    for each in run.of_role("lr", series.rank):
        known = [value for value, at in zip(each.middles, each.lasts, strict=True) if first <= at <= last]
        if len(known) > 2 and known[-1] == max(known) > 1.5 * known[0]:
            return True
    return False


def _weighs_more(series: Series, run: RunState, begun: int) -> bool:
    """Return whether the weight of a part of the loss rose after a step."""
    for each in run.of_role("loss_weight", series.rank):
        since = [middle for middle, last in zip(each.middles, each.lasts, strict=True) if last >= begun]
        if since and max(since) > 1.1 * since[0]:
            return True
    return False


def _stops(middles: list[float], noise: float) -> list[tuple[int, float]]:
    """Yield candidate blocks, with the fall that a 1/t curve would still have brought."""
    found = []
    for at in range(len(middles) // 5, len(middles) - max(10, len(middles) // 3)):
        before, after = middles[at // 4 : at], middles[at:]
        if not _kink(before, after, noise):
            continue
        slope = (before[0] - before[-1]) / max(len(before) - 1, 1)
        owed = slope * at * math.log(len(middles) / at)
        half = len(after) // 2
        got = max(median(after[:3]) - median(after[-3:]), median(after[:half]) - median(after[half:]))
        if owed <= max(12 * noise, 0.15) or got >= 0.06 * owed or abs(got) >= 4 * noise or trend(before) >= -0.75:
            continue
        if abs(trend(after)) < FLAT:
            found.append((at, owed))
    return found


def _stops_on_a_plain_scale(middles: list[float], at: int) -> bool:
    """Return whether the fall was still fast before it stopped: one that reaches a floor exponentially is not."""
    before = middles[at // 4 : at]
    third = max(len(before) // 3, 1)
    early = median(before[:third]) - median(before[third : 2 * third])
    late = median(before[third : 2 * third]) - median(before[-third:])
    floor, half = median(middles[at:]), median(middles[max(at // 2 - 1, 0) : at // 2 + 2])
    return late > PLAIN_FALL * early and half - floor > HALFWAY * (max(middles[:at]) - floor)


def _kink(before: list[float], after: list[float], noise: float) -> bool:
    """Return whether the fall stops between two blocks; a healthy one slows down gradually."""
    if len(before) < 9 or len(after) < 6 or max(after) - min(after) >= 7 * noise:
        return False
    third = len(before) // 3
    early = median(before[:third]) - median(before[third : 2 * third])
    late = median(before[third : 2 * third]) - median(before[-third:])
    last = median(before[-6:-3]) - median(before[-3:])
    following = median(after[:3]) - median(after[3:6])
    return early > 0 and late > 0.7 * early and last > 3 * noise and following < 0.3 * last


def _falls_on(series: Series, found: Finding) -> bool:
    """Return whether a loss has fallen since it was said to have stopped, by a good part of what it owed."""
    begun, said = found.step or 0, found.last or 0
    places = list(zip(series.firsts, series.lasts, series.scaled, strict=True))
    flat = [middle for first, last, middle in places if first >= begun and last <= said]
    later = [middle for first, _, middle in places if first >= said]
    if len(flat) < LATER or len(later) < LATER:
        return False
    noise = 4 * series.noise() / math.sqrt(LATER)
    return median(flat) - median(later[-LATER:]) > max(FELL_ON * found.weight, noise)


HELD, STILL = 4, 20.0
"""So many evaluations in a row were each lower by so many times as much as any of the last ones moves."""
OWED = 5.0
"""In the last evaluation it would still have fallen by so many times as much, had its falls gone on to shrink."""
RATE_FELL = 0.4
"""A learning rate that fell to this share of itself meanwhile is the cause."""


def judge_evaluations(series: Series, run: RunState) -> Finding | None:
    """Detect a held-out loss that fell with each evaluation and, from one on, hardly moves at all."""
    if series.count < 2 * HELD + 2 or run.reinforcement:
        return None
    values, steps = list(series.values)[-2 * HELD - 2 :], list(series.steps)[-2 * HELD - 2 :]
    falls = [a - b for a, b in itertools.pairwise(values)]
    before, after = falls[:HELD], falls[-HELD:]
    moves = max(max(map(abs, after)), ROUNDING * abs(values[-1]))
    if (
        min(before) <= 0
        or values[-1] < min(before)
        or before[-1] * (before[-1] / before[0]) ** ((HELD + 1) / (HELD - 1)) < OWED * moves
    ):
        return None  # it has come to its floor, each time by a part of what was left
    if min(before) < STILL * moves or any(
        _fell(each, steps[HELD], steps[-1]) for each in run.of_role("lr", series.rank)
    ):
        return None
    begun = steps[HELD]
    text = (
        f"{series.key} fell by {number(min(before))} or more from each evaluation to the next and, since step {begun}, "
        f"moves by {number(moves)} at most, at {number(values[-1])}"
    )
    band = (values[-1] - HELD * min(before), values[-1] - min(before))
    return PLATEAU.about(series, begun, text, band, cause=f"in this order: {_FROZEN}; {_FLOOR}")


ROUNDING = 1e-6
"""Digits that a log may not have."""


def _fell(rate: Series, first: int, last: int) -> bool:
    known = [value for value, at in zip(rate.values, rate.steps, strict=True) if first <= at <= last]
    return len(known) > 1 and known[-1] < RATE_FELL * known[0]


StoppedEvaluations = judged_once(
    "StoppedEvaluations", PLATEAU, ("loss",), judge_evaluations, held_out=True, each="value"
)
"""Watches one held-out loss."""

Plateau = judged_once("Plateau", PLATEAU, ("loss",), judge, over=_falls_on)
"""Watches one training loss; what turns out to have been slow for a while only is withdrawn."""
