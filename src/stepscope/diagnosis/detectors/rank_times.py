"""What one rank logs for all: one that takes longer than the others, one whose weights are not theirs."""

import re
from functools import lru_cache
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.desync import REPLICAS
from stepscope.diagnosis.detectors.stragglers import STRAGGLER
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series_history import Series, begun_at

BLOCKS = 6
"""In so many blocks one after another..."""
TIMES = 1.3
"""... it takes so many times as long as half of the others, in each of them."""
OTHERS, LAST = 2, 30
_NUMBER = re.compile(r"(rank|worker|node|host|device|gpu)([_-]?)\d+", re.IGNORECASE)


@lru_cache(maxsize=4096)
def _stem(key: str) -> str:
    return _NUMBER.sub(r"\1\2", key)


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare a rank with the others, block by block."""
    if len(series.middles) < BLOCKS or not series.positive:
        return None
    stem, count = _stem(series.key), len(series.middles)
    peers = [
        each
        for each in run.of_role("rank_time", series.rank)
        if each is not series and _stem(each.key) == stem and each.positive and abs(len(each.middles) - count) <= 1
    ]
    if len(peers) < OTHERS or not _is_always_longer(series, peers):
        return None
    usual = [median(some) for some in zip(*(each.middles for each in peers), strict=False)]
    ratios = [own / each for own, each in zip(series.middles, usual, strict=False)]
    if len(ratios) < BLOCKS or min(ratios[-BLOCKS:]) < TIMES:
        return None
    now = median(ratios[-BLOCKS:])
    begun = series.firsts[begun_at(ratios[: 1 - BLOCKS], lambda ratio: ratio > 1 + 0.5 * (now - 1))]
    level = median(usual[-BLOCKS:])
    text = (
        f"{series.key} has been {number(median(series.middles[-BLOCKS:]))} since step {begun}, {now:.1f} times that of "
        f"half of the others ({number(level)})"
    )
    return STRAGGLER.about(series, begun, text, (level / TIMES, level * TIMES), weight=now)


def _is_always_longer(series: Series, peers: list[Series]) -> bool:
    """Return whether nine of ten times are longer than half of the others': a busy machine delays only some."""
    own = sorted(list(series.values)[-LAST:])
    usual = median(median(list(each.values)[-LAST:]) for each in peers)
    return own[len(own) // 10] >= TIMES * usual


RankTimes = judged_once("RankTimes", STRAGGLER, ("rank_time",), judge)


AGREED, DIFFER = 10, 3
"""Checksums that were equal at so many steps and differ at so many, up to the last."""


def judge_checksum(series: Series, run: RunState) -> Finding | None:
    """Find a rank whose checksum was that of another, and is now that of none."""
    mine = dict(zip(series.steps, series.values, strict=True))
    begun = expected = None
    for other in run.of_role("rank_checksum", series.rank):
        if other is series or _stem(other.key) != _stem(series.key):
            continue
        theirs = {step: value for step, value in zip(other.steps, other.values, strict=True) if step in mine}
        odd = [step for step, value in theirs.items() if value != mine[step]]
        if odd[-DIFFER:] != list(theirs)[-DIFFER:] or len(odd) < DIFFER:
            return None  # it agrees with one of the others
        if begun is None and list(theirs).index(odd[0]) >= AGREED:
            begun, expected = odd[0], theirs[odd[0]]
    if begun is None or expected is None:
        return None
    text = f"{series.key} is {number(mine[begun])} and that of the other ranks {number(expected)} since step {begun}"
    return REPLICAS.about(series, begun, text, (expected, expected))


RankChecksums = judged_once("RankChecksums", REPLICAS, ("rank_checksum",), judge_checksum)
