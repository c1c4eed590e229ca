"""Impossible losses: values that a cross-entropy, a likelihood or a perplexity cannot have."""

import itertools
import re
from functools import lru_cache

from stepscope.diagnosis.detector import RunState, Values, judged_once, leading
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

IMPOSSIBLE = Kind(
    "absurd_loss",
    "WARN",
    "it is computed from something else than probabilities: logits and probabilities are mixed up, or a sign is wrong",
    "Check the inputs of the loss function, and what is divided, masked or subtracted after it.",
    explains=("divergence", "level_shift", "not_learning"),
    lasts=True,
)
_WORDS = re.compile(r"[a-z]+")
ROW = 5
SETTLED = 30
"""The first values may fall far from one to the next."""
_AT_MIN_ZERO = ("cross_entropy", "crossentropy", "nll", "xent", "log_loss", "logloss", "bce", "lm loss", "lm_loss")
_NOT_NEGATIVE = frozenset(
    ("mse", "mae", "rmse", "mape", "huber", "hinge", "ctc", "infonce", "kd", "kld", "kldiv", "kl")
)
"""Words of losses that are a square, a distance or a divergence..."""
_OTHERWISE = frozenset(("neg", "negative", "log", "db", "minus", "diff", "delta", "gain"))
"""... unless one of these is among them."""
_DIVERGENCES = frozenset(("kd", "kld", "kldiv", "kl"))
ESTIMATES = 20
"""An estimate of a divergence may be below zero now and then; so many in a row are none."""
_MIXED_UP = "the divergence is given probabilities where it wants their logarithms (`kl_div` does), or a sign is wrong"
_AT_MIN_ONE = ("perplexity", "ppl")


def is_perplexity(key: str) -> bool:
    """Return whether a name is that of a perplexity."""
    return any(word in key.lower() for word in _AT_MIN_ONE)


def repeats_loss(series: Series, run: RunState) -> bool:
    """Return whether this is a perplexity beside its loss: it rises by as many times as that does in nats."""
    losses = run.of_role("loss", series.rank, series.role.held_out) if is_perplexity(series.key) else ()
    return any(not is_perplexity(each.key) and each.count >= series.count - 1 for each in losses)


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last values with the least that is possible under this name."""
    least = _least(series.key)
    if least is None or series.value >= least or series.count < ROW:
        return None
    divergence = not _DIVERGENCES.isdisjoint(_words(series.key))
    row = ESTIMATES if divergence else ROW
    if series.count < row or max(list(series.values)[-row:]) >= least:
        return None
    if "nll" in series.key.lower() and not _of_classes(series, run):
        return None
    text = f"{series.key} is {number(series.value)} at step {series.step}: below {number(least)}, which is impossible"
    band = (least, max(series.highest, least))
    return IMPOSSIBLE.about(series, series.steps[-row], text, band, cause=_MIXED_UP if divergence else "")


@lru_cache(maxsize=4096)
def _least(key: str) -> float | None:
    """Return the least that is possible under a name; None when the name does not say."""
    lower = key.lower()
    if "log_ppl" in lower:
        return None
    if is_perplexity(lower):
        return 1.0
    words = _words(key)
    if not words.isdisjoint(_NOT_NEGATIVE) and words.isdisjoint(_OTHERWISE):
        return 0.0
    return 0.0 if any(word in lower for word in _AT_MIN_ZERO) else None


def _words(key: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(key.lower()))


def _of_classes(series: Series, run: RunState) -> bool:
    """Return whether a likelihood is one of classes: that of numbers is a density, whose logarithm has any sign.

    A negative probability in the place of a log-probability is between -1 and 0 from the start, and a sign that is lost
    later shows as a jump.
    """
    begun = [series, *(run.beside(series) if series.role.held_out else ())]
    if "accuracy" in run.roles or (series.lowest >= -1 and all(each.highest <= 0 for each in begun)):
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
