"""Values that contradict each other: a loss its accuracy, an evaluation the training, a level what can be learnt."""

import math
import re
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.impossible_loss import IMPOSSIBLE, is_perplexity
from stepscope.diagnosis.detectors.not_learning import NOT_LEARNING
from stepscope.diagnosis.detectors.overfit import GAP
from stepscope.diagnosis.detectors.too_good import TOO_GOOD
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.roles import measure
from stepscope.diagnosis.series_history import Series

VALUES, LAST = 24, 4
"""So many blocks of a loss are known, of which the last ones count."""
MAX_CLASSES = 1000
CLOSE, FLOOR = 0.02, 0.12
"""A first loss is so close to that of guessing; a loss stays so close above a floor."""
KNOWS, TWICE = 0.75, 2.0
"""An accuracy of a model that knows its classes, and how many times the loss that it implies is too much."""
_SOFTMAX = "a softmax is applied twice: the loss function expects logits and gets probabilities"
GUESSED, LEARNT = 0.9, 0.75
"""A held-out loss was never below the first share of that of guessing, and the training's is below the second."""
EVALUATIONS = 5
_OTHER = (
    "what is evaluated is not what is trained: another preparation of the data (normalisation, tokens), the other mode "
    "of dropout or batch norm, or a loss over another axis"
)
AT_FIRST, TIMES, APART = 2.0, 3.0, 0.2
"""A held-out loss is so many times that of the training at its first evaluation, so many at the others, and an accuracy
so far below it."""
COPIED, QUICKLY, NEARLY, WORDS = 0.01, 300, 0.2, 32
"""So little of its loss is left after so few steps, and so little after three quarters of them, of so many words."""


def _has_teacher(run: RunState, rank: int) -> bool:
    """Return whether a loss is against a teacher's answers: it has another floor, and a scale of its own."""
    return any(_OF_TEACHER.search(each.key) for each in run.of_role("loss", rank))


_OF_TEACHER = re.compile(r"(^|[^a-z])(kd|distil\w*|teacher)([^a-z]|$)", re.IGNORECASE)


def judge_softmax(series: Series, run: RunState) -> Finding | None:
    """Find a loss at the floor of probabilities taken for logits: e / (e + K - 1) is the most that one of K can have.

    With as good an accuracy, a loss of true probabilities would be less than half of it; smoothed labels have another
    floor.
    """
    middles = series.middles
    if len(middles) < VALUES or not series.positive or run.reinforcement or series.lowest < math.log(1 + 1 / math.e):
        return None
    classes = round(math.exp(min(series.first_value, 12.0)))
    if _has_teacher(run, series.rank):
        return None
    if not 1 < classes <= MAX_CLASSES or abs(series.first_value / math.log(classes) - 1) > CLOSE:
        return None
    floor, level = math.log(1 + (classes - 1) / math.e), median(middles[-LAST:])
    if not floor <= min(middles) or level > (1 + FLOOR) * floor:
        return None
    for each in run.of_role("accuracy", series.rank):
        right = median(list(each.values)[-LAST:]) if each.count >= LAST and each.highest <= 1.0 else 0.0
        if right >= KNOWS and level > TWICE * _implied(right, classes):
            text = (
                f"{series.key} stays at {number(level)} while {each.key} is {number(right)}: probabilities of "
                f"{classes} classes, taken for logits, have a loss of at least {number(floor)}"
            )
            return IMPOSSIBLE.about(series, series.first_step, text, (0.0, _implied(right, classes)), cause=_SOFTMAX)
    return None


def judge_scale(series: Series, run: RunState) -> Finding | None:
    """Find a loss that stays at that of guessing although the right class is the most probable one."""
    middles = series.middles
    if len(middles) < VALUES or series.lowest < ANY or abs(middles[-1] - middles[0]) > STAYS * middles[0]:
        return None
    if not series.positive or run.reinforcement:
        return None
    level = median(middles[-LAST:])
    if max(middles) - min(middles) > STAYS * level:
        return None
    for each in run.of_role("accuracy", series.rank, held_out=False):
        right = median(each.middles[-LAST:]) if len(each.middles) >= VALUES // 2 and each.highest <= 1.0 else 0.0
        if right > 0.5 and level > TWICE * _implied(right, round(math.exp(min(level, 12.0)))):
            text = f"{series.key} has stayed at {number(level)}, as if all classes were equally probable, though "
            text += f"{each.key} is {number(right)}"
            return NOT_LEARNING.about(series, series.first_step, text, (0.0, level), severity="WARN", cause=_FLATTENED)
    return None


ANY, STAYS = 0.5, 0.02
"""A loss above the first that changes by less than this share of it."""
_FLATTENED = "the logits are far too small: divided by a temperature where they should be multiplied, or scaled down"


def judge_tokens(series: Series, run: RunState) -> Finding | None:
    """Find a loss of tokens that began far above that of guessing among the words of any language model."""
    if len(series.middles) < 3 or run.reinforcement or not series.positive or is_perplexity(series.key):
        return None
    words = _classes(run) or 0
    if words < WORDS and "tokens" not in run.roles and not _of_tokens(series, run):
        return None
    guesses, worst = (math.log(words), FARTHER * math.log(words)) if words >= WORDS else (GUESSES, WORST)
    if min(series.first_value, series.middles[0]) < worst or series.middles[-1] > guesses:
        return None
    text = (
        f"{series.key} began at {number(series.first_value)}: guessing among {words or WORDS_AT_MOST:,} words has "
        f"{number(guesses, 3)}"
    )
    return IMPOSSIBLE.about(series, series.first_step, text, (0.0, guesses), cause=_WIDE)


def _of_tokens(series: Series, run: RunState) -> bool:
    """Return whether a perplexity or an accuracy of tokens is logged beside a loss."""
    beside = (*run.of_role("loss", series.rank), *run.of_role("accuracy", series.rank))
    return any(_TOKENS.search(each.key) for each in beside)


def judge_wide(series: Series, run: RunState) -> Finding | None:
    """Find a loss beside an accuracy that began in the hundreds and fell to a tenth with hardly a better accuracy."""
    middles = series.middles
    if len(middles) < WIDE_BLOCKS or run.reinforcement or not series.positive or is_perplexity(series.key):
        return None
    if middles[0] < WIDE or median(middles[-LAST:]) < GUESSES or run.resumed is not None:
        return None
    for each in run.of_role("accuracy", series.rank, held_out=series.role.held_out):
        if not _SHARES.search(each.key) or each.highest > 1.0 or len(each.middles) < WIDE_BLOCKS:
            continue
        at = next((at for at, middle in enumerate(middles) if middle < 0.1 * middles[0]), None)
        if at is None or at >= len(each.middles) or each.middles[at] > each.middles[0] + 0.2 or each.middles[at] > 0.6:
            continue
        text = (
            f"{series.key} began at {number(middles[0])}, and was {number(middles[at])} by step {series.lasts[at]} "
            f"while {each.key} was {number(each.middles[at])}: guessing has a loss of a few nats"
        )
        return IMPOSSIBLE.about(series, series.first_step, text, (0.0, GUESSES), cause=_GROWS)
    return None


WIDE, WIDE_BLOCKS = 100.0, 8
_SHARES = re.compile(r"(^|[^a-z])(acc|accuracy|top_?1)([^a-z]|$)", re.IGNORECASE)
_GROWS = (
    "the scores are far too large: inputs or targets that are not scaled, states that grow along a sequence, or the "
    "first weights"
)
MANY_SIGNS, AT_ONCE = 2.0, 80
"""A first loss beside a perplexity or an accuracy of tokens, and within how many steps nothing may be left of it."""
WORDS_AT_MOST, GUESSES, WORST = 256_000, 12.5, 20.0
FARTHER = 3.0
"""So many times the loss of guessing among the configured words is too much for the first values."""
_TOKENS = re.compile(r"perplexity|(^|[^a-z])ppl([^a-z]|$)|token_?acc", re.IGNORECASE)
_WIDE = "the weights of the last layer, or of an embedding that is tied to it, begin far too large"


def _implied(right: float, classes: int) -> float:
    """Return the loss of a model that is as sure as it is right."""
    wrong = max(1 - right, 1e-3)
    return -right * math.log(right) - wrong * math.log(wrong / max(classes - 1, 1))


def judge_guessing(series: Series, run: RunState) -> Finding | None:
    """Find a held-out loss that is never better than guessing among the configured classes, while the training's is.

    A model that memorizes was better than guessing at first.
    """
    classes = _classes(run)
    if classes is None or series.count < EVALUATIONS or run.reinforcement or not series.positive:
        return None
    if _has_teacher(run, series.rank):
        return None
    guess, values = math.log(classes), list(series.values)
    least, level = GUESSED * guess, guess
    if is_perplexity(series.key):
        least, level = math.exp(least), classes
    if min(values) < least or median(values[-LAST:]) < level:
        return None
    for other in run.beside(series):
        if is_perplexity(other.key) or not other.positive:
            continue
        if len(other.middles) >= VALUES and median(other.middles[-LAST:]) < LEARNT * guess:
            text = (
                f"{series.key} is {number(series.value)} after {series.count} evaluations, no better than guessing "
                f"among {classes} classes ({number(level)}), while {other.key} is {number(other.value)}"
            )
            return NOT_LEARNING.about(series, series.first_step, text, (0.0, level), severity="WARN", cause=_OTHER)
    return None


def judge_apart(series: Series, run: RunState) -> Finding | None:
    """Find a held-out loss that is far above the training's from the first evaluation on, and an accuracy far below.

    A model that memorizes is as good on both at first: its held-out loss is low before it rises.
    """
    if series.count < EVALUATIONS or run.reinforcement or run.resumed is not None or not series.positive:
        return None
    steps, values = list(series.steps), list(series.values)
    if steps[0] != series.first_step or min(values) < 0.5 * series.first_value:
        return None
    worse = [each for each in run.of_role("accuracy", series.rank, held_out=True) if each.first_step == steps[0]]
    for other in run.of_role("loss", series.rank, held_out=False):
        if measure(other.key) != measure(series.key) or not other.positive:
            continue
        ratios = [_ratio(other, step, value) for step, value in zip(steps, values, strict=True)]
        if ratios[0] < AT_FIRST or min(ratios[1:]) < TIMES:
            continue
        if _never_better(series, other):
            text = (
                f"{series.key} is {number(series.value)} and {other.key} {number(other.value)}, far apart from the "
                f"first evaluation on, and it was never lower than then, though {other.key} fell"
            )
            return GAP.about(series, steps[0], text, (0.0, TIMES * other.value), severity="WARN", cause=_OTHER)
        for held, trained in _pairs(worse, run.of_role("accuracy", series.rank, held_out=False)):
            gaps = [_at(trained, step) - value for step, value in zip(held.steps, held.values, strict=True)]
            if len(gaps) >= EVALUATIONS - 1 and median(gaps) > APART and gaps[0] > APART:
                text = (
                    f"{series.key} is {number(series.value)} and {other.key} {number(other.value)}, and {held.key} "
                    f"is {number(median(gaps), 2)} below {trained.key}, from the first evaluation on"
                )
                return GAP.about(series, steps[0], text, (0.0, TIMES * other.value), severity="WARN", cause=_OTHER)
    return None


def _never_better(series: Series, other: Series) -> bool:
    """Return whether a held-out loss was lowest at its first evaluation, since when the training's has fallen far."""
    if series.count <= EVALUATIONS or min(list(series.values)[1:]) < series.first_value:
        return False
    return median(other.middles[-LAST:]) < FELL * _at(other, series.first_step)


FELL = 0.7
"""A training loss below this share of what it was at the first evaluation."""


def _pairs(held: list[Series], trained: list[Series]) -> list[tuple[Series, Series]]:
    return [
        (a, b) for a in held for b in trained if max(a.highest, b.highest) <= 1 and measure(a.key) == measure(b.key)
    ]


def _ratio(other: Series, step: int, value: float) -> float:
    """Return how many times the level that a training loss had at a step a value is; 0 when it is not known."""
    level = _at(other, step)
    return value / level if level > 0 else 0.0


def _at(series: Series, step: int) -> float:
    """Return the level of a series at a step: the block that ends there; the first is too early to tell."""
    known = [middle for last, middle in zip(series.lasts, series.middles, strict=True) if last <= step]
    return known[-1] if len(known) > 1 else math.nan


def judge_copied(series: Series, run: RunState) -> Finding | None:
    """Find a language model that begins by guessing and has nothing left to learn after a few hundred steps."""
    words = run.setting("vocab_size", "n_vocab", "vocab", "num_tokens") or 0
    known = words >= WORDS
    if len(series.middles) < 4 or run.reinforcement or not series.positive or is_perplexity(series.key):
        return None
    if not known and not (_of_tokens(series, run) and series.first_value > MANY_SIGNS):
        return None
    guess = math.log(words) if known else series.first_value
    if not 0.85 < series.first_value / guess < 1.3 or max(series.middles[-3:]) > COPIED * guess:
        return None
    at = next(at for at, middle in enumerate(series.middles) if middle <= COPIED * guess)
    begun = series.firsts[at]
    if begun - series.first_step > (QUICKLY if known else AT_ONCE) or series.middles[3 * at // 4] > NEARLY * guess:
        return None  # it had learnt as others do before: that is another fault
    text = (
        f"{series.key} fell from {number(series.first_value)}, the loss of guessing, to "
        f"{number(series.value)} within {begun - series.first_step} steps: no language is so easily predicted"
    )
    return TOO_GOOD.about(
        series,
        series.first_step,
        text,
        (COPIED * guess, guess),
        cause="the targets are in the inputs: not shifted by one",
    )


def judge_nothing_found(series: Series, run: RunState) -> Finding | None:
    """Find an overlap with the wanted class (Dice, IoU, F1, recall) that is exactly 0 though the loss has fallen.

    A class that is found late has a loss that still falls; a share of exact answers may be 0 for long.
    """
    if series.value != 0.0:
        return None
    each_epoch = series.role.held_out or (bool(run.held_out) and run.is_sparse(series))
    least = EVALUATIONS + 1 if series.role.held_out else EPOCHS if each_epoch else NEVER_FOUND
    if series.same < least or not _OVERLAPS.search(series.key) or run.reinforcement:
        return None
    if series.role.held_out and any(_OVERLAPS.search(each.key) for each in run.of_role("accuracy", series.rank, False)):
        return None  # that of the training tells it earlier
    for other in run.of_role("loss", series.rank, held_out=False):
        half = other.middles[len(other.middles) // 2 :]
        enough = VALUES if series.same >= EVALUATIONS + LAST else VALUES // 2
        if len(other.middles) < enough or not other.positive or other.middles[-1] > 0.8 * other.middles[0]:
            continue
        if median(half[:LAST]) > SETTLED * median(half[-LAST:]):
            continue
        if series.same < EVALUATIONS + LAST and other.middles[-1] > SOLVED_BY_ALL * other.first_value:
            continue  # few evaluations tell it where hardly any loss is left
        since = series.same_since
        text = f"{series.key} has been exactly 0 since step {since}, in {series.same} values, while {other.key} fell "
        text += f"to {number(other.value)}: the class that counts is never predicted"
        return NOT_LEARNING.about(series, since, text, (0.0, 1.0), severity="WARN", cause=_RARE, advice=_WEIGH)
    return None


def judge_unmoved(series: Series, run: RunState) -> Finding | None:
    """Find a held-out accuracy that has always been exactly 0 while the training loss is as good as solved."""
    if series.count < UNMOVED or series.value != 0.0 or series.distinct or run.reinforcement:
        return None
    if _OVERLAPS.search(series.key):
        return None  # `judge_nothing_found` has it
    for other in run.of_role("loss", series.rank, held_out=False):
        if len(other.middles) < VALUES or not other.positive or other.first_value < ANY:
            continue
        solved = next((at for at, middle in enumerate(other.middles) if middle < SOLVED * other.first_value), None)
        if solved is None or max(other.middles[-LAST:]) > SOLVED * other.first_value:
            continue
        if sum(step > other.lasts[solved] for step in series.steps) < UNMOVED // 2:
            continue
        text = (
            f"{series.key} has been 0 in all {series.count} evaluations while {other.key} fell from "
            f"{number(other.first_value)} to {number(other.value)}: what is learnt is of no use there"
        )
        return GAP.about(series, series.first_step, text, (0.0, 1.0), severity="WARN", cause=_SEEN)
    return None


UNMOVED, SOLVED = 8, 0.02
"""So many evaluations, half of them since the training loss fell to this share of its first value."""
_SEEN = (
    "in this order: in training the answer can be seen in the input (targets not shifted, teacher forcing, a mask that "
    "is missing), which is not there in evaluation; what is evaluated is not what is trained; the metric is broken"
)


def judge_ceiling(series: Series, run: RunState) -> Finding | None:
    """Find a held-out ranking (AUC, NDCG, ...) that is perfect from its first evaluation on, early in the run."""
    if series.count < EVALUATIONS or not _RANKINGS.search(series.key) or run.reinforcement:
        return None
    if series.lowest < PERFECT:
        return _faultless(series, run)
    if series.highest > 1 or series.first_step > EARLIEST * series.step or run.resumed is not None:
        return None
    text = (
        f"{series.key} is {number(series.first_value, 5)} at its first evaluation (step {series.first_step}) and at "
        f"least {number(series.lowest, 5)} in all {series.count}: no real ranking is without an error so soon"
    )
    return TOO_GOOD.about(series, series.first_step, text, (0.0, PERFECT), cause=_KNOWN_BEFORE, advice=_LEAVE_OUT)


def _faultless(series: Series, run: RunState) -> Finding | None:
    """Find an area under a curve that is 1 after a few evaluations already, and in all that follow."""
    if series.count < MANY or not _AREAS.search(series.key) or series.highest > 1 or run.resumed is not None:
        return None
    values, steps = list(series.values), list(series.steps)
    at = next((at for at in range(len(values)) if min(values[at:]) >= FAULTLESS), len(values))
    if series.count > len(values) or at > FIRST_ONES or values[0] < ABOVE:
        return None
    text = (
        f"{series.key} has been {number(values[at], 5)} since evaluation {at + 1} (step {steps[at]}), without an error"
    )
    return TOO_GOOD.about(series, steps[at], text, (0.0, PERFECT), cause=_KNOWN_BEFORE, advice=_LEAVE_OUT)


def judge_chance(series: Series, run: RunState) -> Finding | None:
    """Find an area under a curve that was never above chance, in ten evaluations, and does not come nearer."""
    if series.count < MANY or not _AREAS.search(series.key) or series.highest > CHANCE or series.lowest <= 0:
        return None
    middle, values = median(list(series.values)[-LAST:]), list(series.values)
    if run.resumed is not None or middle > 0.5 + 0.4 * (CHANCE - 0.5) or middle > values[-MANY] + RISEN:
        return None
    text = f"{series.key} is {number(series.value)} after {series.count} evaluations, and was never above "
    text += f"{number(series.highest)}: chance has 0.5"
    return NOT_LEARNING.about(series, series.first_step, text, (CHANCE, 1.0), severity="WARN", cause=_MIXED)


CHANCE, RISEN = 0.55, 0.02
_MIXED = "the labels belong to other rows, or the scores are of another class than the one that is counted"
_AREAS = re.compile(r"(^|[^a-z])(roc_?auc|g?auc|auroc)([^a-z]|$)", re.IGNORECASE)
MANY, FIRST_ONES, FAULTLESS, ABOVE = 10, 3, 0.9999, 0.7
"""Of so many evaluations all but the first few are without an error, and the first one was far above chance."""
_RANKINGS = re.compile(
    r"(^|[^a-z])(roc)?_?(auc|auroc|ndcg|mrr|gauc|hit_?rate|hr@\d+|ndcg@\d+)([^a-z]|$)", re.IGNORECASE
)
PERFECT, EARLIEST = 0.999, 0.25
_KNOWN_BEFORE = (
    "an input tells the target: a count or an id that was made with it, a column from after the event, or the same "
    "examples in both sets"
)
_LEAVE_OUT = "Train without one input after the other, the most telling first; make features from what is known before."


_OVERLAPS = re.compile(r"(^|[^a-z])(dice|m?iou|m_?ap|jaccard|f_?1|recall|precision|prec)([^a-z]|$)", re.IGNORECASE)
NEVER_FOUND, EPOCHS, SETTLED = 100, 30, 2.0
"""So many values in a row are 0, or so many of one an epoch, and the loss has less than halved in the second half."""
SOLVED_BY_ALL = 0.05
_RARE = "the class is rare and the loss is not weighted: everything is taken for the background; or a threshold is off"
_WEIGH = (
    "Weigh the rare class (pos_weight, focal or Dice loss) or sample it more often; look at the scores of its members."
)


def _classes(run: RunState) -> int | None:
    known = run.setting("vocab_size", "num_classes", "num_labels", "n_classes", "classes", "vocab")
    return int(known) if known and known > 1 else None


SoftmaxTwice = judged_once("SoftmaxTwice", IMPOSSIBLE, ("loss",), judge_softmax)
HeldOutGuessing = judged_once("HeldOutGuessing", NOT_LEARNING, ("loss",), judge_guessing, held_out=True, each="value")
ApartFromTheStart = judged_once("ApartFromTheStart", GAP, ("loss",), judge_apart, held_out=True, each="value")
NothingFound = judged_once("NothingFound", NOT_LEARNING, ("accuracy",), judge_nothing_found)
NothingFoundHeldOut = judged_once(
    "NothingFoundHeldOut", NOT_LEARNING, ("accuracy",), judge_nothing_found, held_out=True, each="value"
)
Unmoved = judged_once("Unmoved", GAP, ("accuracy",), judge_unmoved, held_out=True, each="value")
Ceiling = judged_once("Ceiling", TOO_GOOD, ("accuracy",), judge_ceiling, held_out=True, each="value")
Chance = judged_once("Chance", NOT_LEARNING, ("accuracy",), judge_chance, held_out=True, each="value")
Flattened = judged_once("Flattened", NOT_LEARNING, ("loss",), judge_scale)
WideStart = judged_once("WideStart", IMPOSSIBLE, ("loss",), judge_tokens)
WideScores = judged_once("WideScores", IMPOSSIBLE, ("loss",), judge_wide)
Copied = judged_once("Copied", TOO_GOOD, ("loss",), judge_copied)
"""Watch one loss, with what is logged beside it."""
