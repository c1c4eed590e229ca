"""Retry storms: counters of retries, timeouts or failures that rise much faster than before."""

import itertools
from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.detectors.log_anomalies import RETRIES
from stepscope.diagnosis.finding import Finding, number
from stepscope.diagnosis.series_history import Series

MIN_BLOCKS = 6
BLOCKS = 2
"""This many blocks in a row are far above all before them."""
TIMES = 10.0
LEAST = 5.0
"""The smallest counter increase that is reported."""


def judge(series: Series, run: RunState) -> Finding | None:
    """Compare the last blocks with those before; a counter that never falls is cumulative."""
    middles = series.middles
    if len(middles) < MIN_BLOCKS + BLOCKS:
        return None
    grown = [b - a for a, b in itertools.pairwise(middles)]
    rates = middles[1:] if min(grown) < 0 else [each / series.block_size for each in grown]
    before, newest = rates[:-BLOCKS], rates[-BLOCKS:]
    high = max(LEAST, TIMES * median(before), 2 * max(before))
    if min(newest) < high:
        return None
    begun = series.firsts[-BLOCKS]
    text = f"{series.key}: {number(min(newest))} per report since step {begun}, usually {number(median(before))}"
    return RETRIES.about(series, begun, text, (0.0, high), value=newest[-1], weight=2.0)


Retries = judged_once("Retries", RETRIES, ("failures",), judge, held_out=None)
"""Watches one counter of retries, timeouts or failures, per step or cumulative."""
