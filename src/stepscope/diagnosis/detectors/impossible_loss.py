"""Impossible losses: values that a cross-entropy, a likelihood or a perplexity cannot have."""

import itertools
from functools import lru_cache

from stepscope.diagnosis.detector import RunState, Values, judged_once, leading
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

IMPOSSIBLE = Kind(
    "absurd_loss",
    "WARN",
    "it is computed from something else than probabilities: logits and probabilities are mixed up, or a sign is wrong",
    "Check the inputs of the loss function, and what is divided, masked or subtracted after it.",
    explains=("divergence", "level_shift"),
    lasts=True,
)
ROW = 5
SETTLED = 30
"""The first values may fall far from one to the next."""
_AT_MIN_ZERO = ("cross_entropy", "crossentropy", "nll", "xent", "log_loss", "logloss", "bce", "lm loss", "lm_loss")
_AT_MIN_ONE = ("perplexity", "ppl")


def is_perplexity(key: str) -> bool:
    """Return whether a name is that of a perplexity."""
    return any(word in key.lower() for word in _AT_MIN_ONE)


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last values with the least that is possible under this name."""
    least = _least(series.key)
    if least is None or series.value >= least or series.count < ROW:
        return None
    if max(list(series.values)[-ROW:]) >= least:
        return None
    if "nll" in series.key.lower() and not _of_classes(series, run):
        return None
    text = f"{series.key} is {number(series.value)} at step {series.step}: below {number(least)}, which is impossible"
    return IMPOSSIBLE.about(series, series.steps[-ROW], text, (least, max(series.highest, least)))


@lru_cache(maxsize=4096)
def _least(key: str) -> float | None:
    """Return the least that is possible under a name; None when the name does not say."""
    lower = key.lower()
    if "log_ppl" in lower:
        return None
    if is_perplexity(lower):
        return 1.0
    return 0.0 if any(word in lower for word in _AT_MIN_ZERO) else None


def _of_classes(series: Series, run: RunState) -> bool:
    """Return whether a likelihood is one of classes: that of numbers is a density, whose logarithm has any sign.

    A negative probability in the place of a log-probability is between -1 and 0 from the start, and a sign that is lost
    later shows as a jump.
    """
    if "accuracy" in run.roles or (series.highest <= 0 and series.lowest >= -1):
        return True
    if series.block_size == 1:
        return False  # of few values any may be far below the one before
    fell = max(a - b for a, b in itertools.pairwise(series.values))
    return series.count > SETTLED and fell > 0.4 * (series.highest - series.lowest)


def _usual(series: Series, run: RunState, ahead: Values) -> int:
    least = _least(series.key)
    return len(ahead.steps) if least is None else leading(value >= least for value in ahead.values)


ImpossibleLoss = judged_once("ImpossibleLoss", IMPOSSIBLE, ("loss",), judge, held_out=None, each="value", usual=_usual)
"""Watches one loss whose name says what it is."""
