"""Posterior collapse: a code that says nothing about the input, by its KL term or by the spread of embeddings."""

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
_RECONSTRUCTION = re.compile(
    r"recon|elbo|bits_per_dim|distortion|(image|pixel|obs|observation|decoder|rec)_?(loss|nll|mse)", re.IGNORECASE
)
_KL = re.compile(r"(^|[^a-z])(kl|kld)([^a-z]|$)|kl_?div", re.IGNORECASE)
MIN_BLOCKS, LAST = 24, 8
LEFT = 0.01
"""So little is left of its first values..."""
SMALL = 0.05
"""... and so few nats."""
HALF = 0.5
"""It began to fall after it had last been above this share of its highest value."""


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
    kept = max(at for at, middle in enumerate(middles) if middle >= HALF * max(middles))
    begun = series.firsts[min(kept + 1, len(middles) - 1)]
    now = number(median(recent))
    text = f"{series.key} fell from {number(series.highest)} to {now} since step {begun}: the code holds nothing"
    return COLLAPSE.about(series, begun, text, (LEFT * series.highest, series.highest))


FIRST, LOST, SPREAD = 3, 0.3, 6
"""Below this share of its first blocks a spread of embeddings has collapsed, for so many blocks."""
_EQUAL = (
    "every input gets nearly the same embedding: no stop-gradient or negatives keep them apart, the teacher follows "
    "too closely, or the rate is too high"
)


LEVEL, FALLS, STEEPER = 0.72, 0.1, 3.0
"""A spread that is below this share of a level, and fell by so much of it in as many blocks as it had kept it..."""
KEPT, LEARNT = 6, 20
"""... so many times as fast as before, collapses: after so many blocks, since it may halve while it learns."""


def judge_spread(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks of a spread of embeddings with the first; that it halves while it learns is usual."""
    middles = series.middles
    if len(middles) < FIRST + 2 * SPREAD or not series.positive:
        return None
    was, recent = median(middles[:FIRST]), middles[-SPREAD:]
    top = max(was, series.first_value)
    if max(recent) <= LOST * top and recent[-1] <= 1.5 * min(middles):
        begun = next(first for first, middle in zip(series.firsts, middles, strict=True) if middle <= 0.5 * top)
    elif (at := _kink(middles)) is not None:
        begun, top = series.lasts[at], middles[at]
    else:
        return None
    text = f"{series.key} fell from {number(top)} to {number(recent[-1])} since step {begun}: embeddings hardly differ"
    advice = "Look at the embeddings of ten inputs; check the stop-gradient, the negatives and the teacher's momentum."
    return COLLAPSE.about(series, begun, text, (LOST * top, top), cause=_EQUAL, advice=advice)


def _kink(middles: list[float]) -> int | None:
    """Return the block from which a level that was kept is left ever farther below."""
    now = median(middles[-3:])
    if now > 1.02 * min(middles):
        return None
    for at in range(LEARNT, len(middles) - KEPT):
        before, was = median(middles[at - KEPT - 2 : at - KEPT + 1]), median(middles[at - 2 : at + 1])
        falls = 1 - median(middles[at + KEPT - 2 : at + KEPT + 1]) / was
        if now < LEVEL * was and falls > max(FALLS, STEEPER * (1 - was / before)):
            return at
    return None


def judge_samples(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks of a spread of generated samples with its highest level."""
    middles = series.middles
    if len(middles) < FIRST + 2 * SPREAD or not series.positive:
        return None
    top, recent = max(middles), middles[-SPREAD:]
    if max(recent) > LOST * top or recent[-1] > 1.5 * min(middles):
        return None
    begun = next(
        first
        for first, middle in zip(series.firsts, middles, strict=True)
        if first > _peak(series, top) and middle <= 0.5 * top
    )
    text = f"{series.key} fell from {number(top)} to {number(recent[-1])} since step {begun}: samples hardly differ"
    advice = (
        "Look at ten samples; give the discriminator the batch's spread, lower the generator's rate or its updates."
    )
    return COLLAPSE.about(series, begun, text, (LOST * top, top), cause=_ONE_MODE, advice=advice)


def _peak(series: Series, top: float) -> int:
    return series.firsts[series.middles.index(top)]


_ONE_MODE = "the generator makes nearly the same for every input (mode collapse)"
SampleCollapse = judged_once("SampleCollapse", COLLAPSE, ("sample_spread",), judge_samples)
EmbeddingCollapse = judged_once("EmbeddingCollapse", COLLAPSE, ("embedding_spread",), judge_spread)
PosteriorCollapse = judged_once("PosteriorCollapse", COLLAPSE, ("kl", "reference_kl", "side_loss"), judge)
"""Watch one spread of embeddings, and one KL term."""
