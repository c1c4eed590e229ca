"""Metrics that left their usual course: spikes against their neighbours, KL over its band, and what is no number."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from stepscope.hub.questions.evidence import Course, Finding, Stretch, in_steps, on_ranks, too
from stepscope.hub.questions.nonfinite import not_finite
from stepscope.journal.key_summary import importance
from stepscope.model.formatting import number

WINDOW = 40
"""So many stretches on either side are a stretch's neighbours."""
LEAST_BEFORE = 10
"""A spike needs so many stretches before it: the first steps of a training are unlike all others."""
SIGMAS = 12.0
"""A spike is so many robust standard deviations from the median of its neighbours..."""
FARTHER = 5.0
"""... and so many times farther from it than nine in ten of them."""
KL_TIMES = 6.0
"""A KL is over its band at so many times its median, or the target's..."""
KL_TARGET_TIMES = 2.0
_QUIET = 2.0
"""Metrics that do not lead (losses, rewards and the like do) must stand out so many times as far."""
_KL = re.compile(r"(^|[^a-z])kl($|[^a-z])")


@dataclass(frozen=True, slots=True)
class _Peak:
    """A stretch of steps in which a metric was away on one rank."""

    key: str
    rank: int
    step: int
    first: int
    last: int
    value: float
    usual: float
    weight: float


def excursions(courses: Sequence[Course], kl_target: float | None = None) -> list[Finding]:
    """Find spikes, values that are not finite, and KL over its band."""
    judged = [course for course in courses if not course.key.startswith(("system/", "stepscope/"))]
    ranks = len({course.rank for course in courses})
    kls = [course for course in judged if _KL.search(course.key.lower())]
    others = [course for course in judged if not _KL.search(course.key.lower())]
    return [
        *not_finite(judged, ranks),
        *_together([peak for course in others for peak in _spikes(course)], ranks),
        *_over_band([peak for course in kls for peak in _kl_peaks(course, kl_target)], ranks),
    ]


def _spikes(course: Course) -> list[_Peak]:
    stretches = [each for each in course.stretches if each.good]
    found = []
    demand = 1.0 if importance(course.key) < importance("") else _QUIET
    for upward in (True, False):
        values = [each.high if upward else each.low for each in stretches]
        found += [
            _peak(course, stretches[at], upward, usual, weight)
            for at in _suspects(values)
            for usual, weight in _judged(values, at, upward, demand)
        ]
    return _joined(found, stretches)


def _peak(course: Course, stretch: Stretch, upward: bool, usual: float, weight: float) -> _Peak:
    step = stretch.high_step if upward else stretch.low_step
    value = stretch.high if upward else stretch.low
    return _Peak(course.key, course.rank, step, step, step, value, usual, weight)


def _suspects(values: Sequence[float]) -> list[int]:
    """Where a value is far from the median of its block: all that are worth a closer look."""
    found = []
    for start in range(0, len(values), WINDOW):
        block = values[max(start - WINDOW // 2, 0) : start + WINDOW + WINDOW // 2]
        middle = median(block)
        spread = median(abs(value - middle) for value in block)
        found += [
            start + at
            for at, value in enumerate(values[start : start + WINDOW])
            if abs(value - middle) > 5 * spread + 1e-12 * abs(middle)
        ]
    return [at for at in found if at >= LEAST_BEFORE]


def _judged(values: Sequence[float], at: int, upward: bool, demand: float) -> Iterable[tuple[float, float]]:
    """The usual value and how far from it, for one that stands out from its neighbours in a direction."""
    around = [*values[max(at - WINDOW, 0) : at], *values[at + 1 : at + 1 + WINDOW]]
    middle = median(around)
    away = values[at] - middle
    if (away > 0) != upward:
        return
    distances = sorted(abs(value - middle) for value in around)
    spread = max(1.4826 * distances[len(distances) // 2], 0.01 * abs(middle), 1e-12)
    typical = distances[int(len(distances) * 0.9)]
    if abs(away) >= demand * max(SIGMAS * spread, FARTHER * typical):
        yield middle, abs(away) / spread


def _joined(peaks: list[_Peak], stretches: Sequence[Stretch]) -> list[_Peak]:
    """Peaks of a course in stretches beside each other as one, at the highest."""
    places = {each.high_step: at for at, each in enumerate(stretches)}
    places.update({each.low_step: at for at, each in enumerate(stretches) if each.low_step not in places})
    made: list[list[_Peak]] = []
    for peak in sorted(peaks, key=lambda each: each.step):
        if made and places[peak.step] - places[made[-1][-1].step] <= 2:
            made[-1].append(peak)
        else:
            made.append([peak])
    return [_widest(group) for group in made]


def _widest(group: list[_Peak]) -> _Peak:
    top = max(group, key=lambda each: each.weight)
    first, last = min(each.first for each in group), max(each.last for each in group)
    return _Peak(top.key, top.rank, top.step, first, last, top.value, top.usual, top.weight)


def _groups(peaks: Iterable[_Peak]) -> list[list[_Peak]]:
    """Peaks that overlap in steps (or touch), of any key and rank."""
    made: list[list[_Peak]] = []
    reached = 0
    for peak in sorted(peaks, key=lambda each: each.first):
        if made and peak.first <= reached + 1:
            made[-1].append(peak)
            reached = max(reached, peak.last)
        else:
            made.append([peak])
            reached = peak.last
    return made


def _together(peaks: Iterable[_Peak], everyone: int) -> list[Finding]:
    """One finding for all metrics that spiked at the same steps; the one that matters most gives the name."""
    return [_spike(group, everyone) for group in _groups(peaks)]


def _spike(group: list[_Peak], everyone: int) -> Finding:
    keys = sorted({peak.key for peak in group}, key=lambda key: (importance(key), key))
    leading = [peak for peak in group if peak.key == keys[0]]
    top = max(leading, key=lambda peak: peak.weight)
    ranks = tuple(sorted({peak.rank for peak in leading}))
    # A metric that is the same on all ranks says nothing of who was first; one that differs does.
    rank = top.rank if len(ranks) < everyone or everyone == 1 or _alone(leading, top) else None
    also = tuple(keys[1:])
    where = on_ranks([rank] if rank is not None else ranks, everyone)
    way = "spiked to" if top.value > top.usual else "fell to"
    text = f"{top.key} {way} {number(top.value)} at step {top.step}{where} (usually {number(top.usual)}){too(also)}"
    first, last = min(peak.first for peak in group), max(peak.last for peak in group)
    return Finding(
        "spike", "ERROR" if importance(top.key) < importance("") else "WARN", text, top.step, first, last, rank, ranks,
        key=top.key, also=also, value=top.value, usual=top.usual, weight=top.weight,
    )  # fmt: skip


def _alone(peaks: list[_Peak], top: _Peak) -> bool:
    """Whether one rank was far ahead of the others."""
    others = [peak.weight for peak in peaks if peak.rank != top.rank]
    return bool(others) and top.weight >= 3 * max(others)


def _kl_peaks(course: Course, target: float | None) -> list[_Peak]:
    stretches = [each for each in course.stretches if each.good]
    if len(stretches) < LEAST_BEFORE:
        return []
    usual = median(each.high for each in stretches)
    band = max(KL_TIMES * usual, KL_TARGET_TIMES * target if target else 0.0)
    peaks = [
        _Peak(
            course.key, course.rank, each.high_step, each.high_step, each.high_step, each.high, band, each.high / band
        )
        for each in stretches
        if band > 0 and each.high > band
    ]
    return _joined(peaks, stretches)


def _over_band(peaks: Iterable[_Peak], everyone: int) -> list[Finding]:
    return [_blow_up(group, everyone) for group in _groups(peaks)]


def _blow_up(group: list[_Peak], everyone: int) -> Finding:
    top = max(group, key=lambda peak: peak.weight)
    first, last = min(peak.first for peak in group), max(peak.last for peak in group)
    ranks = tuple(sorted({peak.rank for peak in group}))
    also = tuple(sorted({peak.key for peak in group} - {top.key}))
    span = f", over it {in_steps(first, last)}" if first != last else ""
    where = on_ranks(ranks, everyone)
    text = f"{top.key} blew up to {number(top.value)} at step {top.step}{where} (band {number(top.usual)}{span})"
    return Finding(
        "kl", "ERROR", text, top.step, first, last, top.rank if len(ranks) == 1 else None, ranks,
        key=top.key, also=also, value=top.value, usual=top.usual, weight=top.weight,
    )  # fmt: skip
