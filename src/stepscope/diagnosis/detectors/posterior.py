"""Posterior collapse: an autoencoder whose KL term falls to nothing, so that its code says nothing about the input."""

import re
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series

COLLAPSE = Kind(
    "posterior_collapse",
    "WARN",
    "the weight of the KL term is too high, or the decoder does without the code: it holds nothing of the input",
    "Lower the weight of the KL term, phase it in over the first epochs, or leave some of it free (free bits).",
    explains=("plateau", "not_learning", "vanishing_gradients"),
    lasts=True,
    rules_out="a code that is learnt late: the KL has fallen, and not begun to rise",
)
_RECONSTRUCTION = re.compile(r"recon|elbo|bits_per_dim", re.IGNORECASE)
_KL = re.compile(r"(^|[^a-z])(kl|kld)([^a-z]|$)|kl_?div", re.IGNORECASE)
MIN_BLOCKS, LAST = 24, 8
LEFT = 0.01
"""So little is left of its first values..."""
SMALL = 0.05
"""... and so few nats."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks of a KL with its first values; it belongs to an autoencoder if something is rebuilt."""
    middles = series.middles
    if len(middles) < MIN_BLOCKS or not _KL.search(series.key) or run.reinforcement:
        return None
    recent = middles[-LAST:]
    if series.highest <= SMALL:
        return None  # it was nothing from the start, and has not fallen
    if max(recent) > min(LEFT * series.highest, SMALL) or recent[-1] > 1.5 * min(middles):
        return None
    losses = (*run.of_role("loss", series.rank, held_out=False), *run.of_role("side_loss", series.rank, held_out=False))
    if not any(_RECONSTRUCTION.search(each.key) for each in losses):
        return None
    begun = next(first for first, middle in zip(series.firsts, middles, strict=True) if middle <= LEFT * series.highest)
    now = number(median(recent))
    text = f"{series.key} fell from {number(series.highest)} to {now} since step {begun}: the code holds nothing"
    return COLLAPSE.about(series, begun, text, (LEFT * series.highest, series.highest))


PosteriorCollapse = judged_once("PosteriorCollapse", COLLAPSE, ("kl", "side_loss"), judge)
"""Watches one KL term."""
