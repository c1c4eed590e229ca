"""Not learning: a loss that has not fallen since the start, at the level of guessing or anywhere else."""

import math
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.roles import measure
from stepscope.diagnosis.series_history import Series, jitter, spread, sure_trend, trend

NOT_LEARNING = Kind(
    "not_learning",
    "ERROR",
    "gradients do not reach the weights, labels do not belong to the inputs, or the learning rate is far off",
    "Check that parameters require gradients, that the optimizer holds them, and that labels match the inputs; "
    "try to learn one batch by heart.",
    explains=(
        "plateau",
        "spike",
        "divergence",
        "level_shift",
        "oscillation",
        "vanishing_gradients",
        "exploding_gradients",
        "accuracy_drop",
    ),
    lasts=True,
)
OSCILLATION = Kind(
    "oscillation",
    "WARN",
    "the data comes in an order (sorted, not shuffled), or the learning rate is too high to settle",
    "Shuffle the data; lower the learning rate.",
    explains=("spike",),
    lasts=True,
)
CLASSES = (
    *(2, 10, 100, 1000, 8192, 16384, 21841, 30522, 32000, 32768, 50257, 50304, 65536, 100277, 128256, 151936),
    *(250112, 256000),
)
"""Common class counts and vocabulary sizes: random guessing has a loss of their logarithm."""
DISTANCES = frozenset(("mae", "mse", "rmse", "mape", "huber"))
"""Words of losses of numbers, which are not guessed among classes."""
CHANCE = 0.015
STUCK_STEPS = 150
SURE_STEPS = 100
"""With an accuracy of guessing beside it a loss is judged from this many values on."""
UNSURE, NEAR = 2.5, 0.04
"""Its trend is in so many standard errors at most, and it is so close to that of guessing."""
FLAT = 0.06
MIN_BLOCKS = 12
EPOCHS = 15
"""A loss that is logged once an epoch is judged from this many on."""
LONG = 240
"""A loss at any other level is reported when it has not fallen in this many values..."""
FEWER, APART = 6, 4.0
"""Of a loss that is logged at every so many steps, or more, so many times fewer values are enough."""
FALLS, KNOWS = -0.25, 0.8
"""Few values whose trend (Kendall's tau) is below the first fall, and a model with such an accuracy knows its task."""
RISES = 3.5
"""An accuracy whose trend (Kendall's tau) is this many standard errors above none shows that something is learnt."""
BEGUN = 20
"""A loss whose first value comes later than after so many others is that of a training that was resumed."""
EVALUATIONS, VALUES, GAINED = 5, 30, 0.01
"""Nothing was learnt if none of so many evaluations, beside so many values of the training, is better by this share."""
FALL = 0.02
"""... by this much, in logarithms."""
LEARNT = 0.04
"""A loss whose lowest level is this far below its first values, in logarithms, had learnt something."""
HIGHER = 0.15
"""A loss this far above its first values, in logarithms, does not settle."""
SWINGS = 0.3
"""The spread of an oscillating loss, as a share of its level."""
FALLEN = 0.2
"""A loss this far below its first value, in logarithms, has learnt something."""
PINNED, CLOSE, FEWEST = 0.002, 0.0005, 60
"""A loss that varies by less than the first, in logarithms, is that of guessing among so few, or a power of 2."""


def _pinned(series: Series, middles: list[float]) -> int | None:
    """Return among how many it guesses, if a loss hardly differs from batch to batch, as if all inputs were alike.

    Where pairs are told apart within a batch these are the size of the batch, which nothing else tells.
    """
    last = middles[-len(middles) // 2 :]
    level = median(last)
    if max(last) - min(last) > PINNED or min(middles) < level - PINNED or not series.positive or level > 3.0:
        return None
    count = round(math.exp(series.plain(level)))
    if count < 2 or (count > FEWEST and count & (count - 1)):
        return None
    return count if abs(level - math.log(math.log(count))) < CLOSE else None


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks with the first."""
    middles, each = series.block_medians(), _each(series, run)
    if EPOCHS <= series.count < STUCK_STEPS // each and (found := _few(series, run)) is not None:
        return found
    if series.count < SURE_STEPS // each or not series.positive or len(middles) < MIN_BLOCKS:
        return None
    if run.reinforcement or run.resumed is not None or _has_fallen(series, middles) or _falls(series, middles):
        return None
    if series.count < STUCK_STEPS // each:
        found = _soon(series, run, middles)
    else:
        found = _guessing(series, run, middles) or _flat(series, run, middles)
    return None if found is None or _gets_better(series, run) else found


def _each(series: Series, run: RunState) -> int:
    """Return for how many values one counts: more than one, where few are logged in many steps."""
    few = run.is_sparse(series) and series.spacing >= APART and series.step - series.first_step >= LONG
    return FEWER if few else 1


def _falls(series: Series, middles: list[float]) -> bool:
    """Return whether few values fall after all, which their noise hides."""
    return series.block_size == 1 and trend(middles) < FALLS


def _knows(series: Series, run: RunState) -> bool:
    """Return whether an accuracy is high: what there is to learn was learnt elsewhere, or the loss is wrong."""
    known = run.of_role("accuracy", series.rank, held_out=False)
    return any(each.middles and each.highest <= 1 and median(each.middles[-8:]) > KNOWS for each in known)


def _gets_better(series: Series, run: RunState) -> bool:
    """Return whether an accuracy has been rising all the time: the fall of the loss is hidden by its noise."""
    known = run.of_role("accuracy", series.rank, held_out=False)
    return any(len(each.middles) >= MIN_BLOCKS and sure_trend(list(each.middles)) > RISES for each in known)


def _few(series: Series, run: RunState) -> Finding | None:
    """Detect a loss at the logarithm of a number of classes that is logged once an epoch, with an evaluation."""
    values = list(series.values)
    level = median(values)
    if (found := _came_to_guess(series, run, values)) is not None:
        return found
    if not series.positive or max(values[1:]) - min(values[1:]) > 0.01 * level or run.reinforcement:
        return None
    evaluated = max((each.count for each in run.held_out), default=0)
    count = _classes(series, run, level) if evaluated >= 0.8 * series.count else None
    if count is None:
        return None
    text = f"{series.key} has stayed at {number(level)} in {series.count} values, each with an evaluation: "
    text += f"ln {count}, the loss of guessing among {count} classes"
    return NOT_LEARNING.about(series, series.first_step, text, (0.0, level * 0.9))


def _came_to_guess(series: Series, run: RunState, values: list[float]) -> Finding | None:
    """Detect a loss that came down to that of guessing among the configured classes, and to nothing below it."""
    classes = run.setting("num_classes", "num_labels", "n_classes", "classes")
    if not classes or classes < 2 or len(values) <= EPOCHS or run.reinforcement or series.lowest <= 0:
        return None
    level, last = math.log(classes), values[-EPOCHS:]
    if abs(median(last) - level) > CHANCE * level or max(last) - min(last) > CHANCE * level:
        return None
    if series.lowest < (1 - CHANCE) * level or series.first_value < (1 + CHANCE) * level:
        return None
    at = next(at for at in range(len(values)) if max(values[at:]) - level < CHANCE * level)
    begun = series.steps[at]
    text = f"{series.key} has stayed at {number(median(last))} since step {begun}, in {len(values) - at} values: "
    text += f"ln {int(classes)}, the loss of guessing among {int(classes)} classes"
    return NOT_LEARNING.about(series, begun, text, (0.0, level * 0.9))


def _has_fallen(series: Series, middles: list[float]) -> bool:
    """Return whether the loss is clearly below its first values: a quick answer for most runs."""
    return middles[-1] < min(math.log(series.first_value), median(middles[:4])) - FALLEN


def _guessing(series: Series, run: RunState, middles: list[float]) -> Finding | None:
    """Detect a loss at the logarithm of a number of classes, or above it with an accuracy of guessing."""
    level = series.plain(median(middles[-8:]))
    last = middles[-len(middles) // 2 :]
    wide = max(FLAT, 6 * series.noise())
    if (
        abs(median(last[-4:]) - median(last[:4])) > min(max(4 * series.noise(), 0.01), FLAT)
        or max(last) - min(last) > wide
    ):
        return None
    flat = max(middles) - min(middles) <= wide and median(middles[:4]) - median(middles[-8:]) < 0.5 * FLAT
    count = _classes(series, run, level) if flat else _pinned(series, middles)
    guessed = _guessed(series, run, level) if count is None else None
    if count is None and guessed is None:
        return None
    where = (
        f"ln {count}, the loss of guessing among {count} classes"
        if count
        else f"with an accuracy of {number(guessed or 0)}, no better than guessing"
    )
    text = f"{series.key} has stayed at {number(level)} for {series.count} steps: {where}"
    return NOT_LEARNING.about(series, series.first_step, text, (0.0, level * 0.9))


def _soon(series: Series, run: RunState, middles: list[float]) -> Finding | None:
    """Detect a loss of guessing among as many classes as an accuracy beside it guesses among."""
    level = series.plain(median(middles))
    count = next((each for each in CLASSES if abs(level - math.log(each)) < CHANCE * math.log(each)), None)
    if count is None or max(middles) - min(middles) > max(FLAT, 6 * series.noise()):
        return None
    for each in run.of_role("accuracy", series.rank, held_out=False):
        known = each.middles
        if len(known) < MIN_BLOCKS or each.highest > 1.0 or sure_trend(known) > UNSURE:
            continue
        if abs(median(known[-8:]) - 1 / count) < max(NEAR, jitter(known)) and abs(median(known) - 1 / count) < NEAR:
            text = f"{series.key} has stayed at {number(level)} for {series.count} values, and {each.key} at "
            text += f"{number(median(known))}: guessing among {count} classes"
            return NOT_LEARNING.about(series, series.first_step, text, (0.0, level * 0.9))
    return None


def _classes(series: Series, run: RunState, level: float) -> int | None:
    """Return the common number of classes whose logarithm equals the loss."""
    configured = run.setting("vocab_size", "num_classes", "num_labels", "n_classes", "classes", "vocab")
    losses = run.of_role("loss", series.rank, held_out=False)
    if not configured and any(not DISTANCES.isdisjoint(measure(each.key)) for each in losses):
        return None
    known = (int(configured),) if configured and configured > 1 else CLASSES
    close = CHANCE if configured else CHANCE / 4
    return next((each for each in known if abs(level - math.log(each)) < close * math.log(each)), None)


def _guessed(series: Series, run: RunState, level: float) -> float | None:
    """Return the accuracy when it is that of guessing among as many classes as the loss speaks of, or fewer."""
    for each in run.of_role("accuracy", series.rank, held_out=False):
        if each.count < STUCK_STEPS // 2 // _each(series, run) or len(each.middles) < MIN_BLOCKS or each.highest > 1.0:
            continue
        recent = median(each.middles[-8:])
        if recent > 3 * math.exp(-level):
            continue  # far better than guessing at this loss
        if 0 < recent < 0.6 and level > 0.98 * math.log(1 / recent) and recent < median(each.middles[:3]) + 0.05:
            return recent
    return None


def _alone(series: Series, run: RunState) -> bool:
    """Return whether another loss of the training has fallen: this one is left out."""
    for each in run.of_role("loss", series.rank, held_out=False):
        if each.positive and len(each.scaled) >= MIN_BLOCKS and each.scaled[-1] < each.scaled[0] - FALLEN:
            return True
    return False


def _evaluations_stay(series: Series, run: RunState) -> bool:
    """Return whether no evaluation was better than the first, in enough of them to say it."""
    losses = [each for each in run.of_role("loss", series.rank, held_out=True) if each.positive]
    scores = run.of_role("accuracy", series.rank, held_out=True)
    better = any(each.lowest < (1 - GAINED) * each.first_value for each in losses) or any(
        each.highest > each.first_value + FALL for each in scores
    )
    return not better and series.count >= VALUES and any(each.count >= EVALUATIONS for each in losses)


def _flat(series: Series, run: RunState, middles: list[float]) -> Finding | None:
    """Detect a loss that is no lower than at the start, wherever that is."""
    stays = _evaluations_stay(series, run)
    if not stays:
        if series.count < LONG // _each(series, run):
            return None
        if run.roles.isdisjoint(("lr", "grad_norm", "accuracy")) and not _alone(series, run):
            return None  # without these it may be no training by gradients
    if series.first_step > BEGUN * max(series.spacing, 1.0) or _knows(series, run):
        return None  # it goes on with what was learnt elsewhere
    start = series.first_value
    begun, now = median(middles[:4]), median(middles[-len(middles) // 3 :])
    error = series.noise() / math.sqrt(len(middles) / 3)
    if begun - now > (2 * FALL if stays else max(0.5 * FALL, min(FALL, 3 * error))):
        return None
    values = list(series.values)
    level = median(values)
    fell = min(begun, math.log(start)) - now
    if fell > FALL or (fell > 0.5 * FALL and sure_trend(middles) < -UNSURE):
        return None
    smooth = [median(middles[at : at + 8]) for at in range(0, len(middles) - 7, 4)]
    if min(smooth) < min(begun, math.log(start)) - max(LEARNT, series.noise()):
        return None  # it had learnt something
    higher = now - begun > max(HIGHER, 3 * error)
    if higher or (spread(values) > SWINGS * level and series.block_size > 1):
        text = (
            f"{series.key} swings between {number(min(values))} and {number(max(values))} and is "
            f"{'higher' if higher else 'no lower'} than at the start after {series.count} steps"
        )
        return OSCILLATION.about(series, series.first_step, text, (0.0, series.plain(begun) * 0.9))
    was, became = number(series.plain(begun)), number(series.plain(now))
    text = f"{series.key} has not fallen in {series.count} steps: {was} at the start, {became} now"
    return NOT_LEARNING.about(series, series.first_step, text, (0.0, series.plain(begun) * 0.9), severity="WARN")


NotLearning = judged_once("NotLearning", NOT_LEARNING, ("loss",), judge)
"""Watches one training loss, with the accuracy beside it."""
