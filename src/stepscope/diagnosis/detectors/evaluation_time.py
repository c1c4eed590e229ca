"""Evaluations and checkpoints that take a good part of the time, since a step or from the start on."""

import re
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, pairwise
from statistics import median
from typing import ClassVar, NamedTuple

from stepscope.diagnosis.detector import Found, RunState
from stepscope.diagnosis.detectors.stalls import PERIODIC
from stepscope.diagnosis.finding import Finding, Kind, seconds
from stepscope.diagnosis.span_names import traits
from stepscope.model.records import Span

SHARE, IN_ALL = 0.4, 0.1
"""They take this share of the time lately, and this share of the run so far..."""
SECONDS = 1.0
"""... and so many seconds in all."""
OFTEN, KEPT = 8, 64
"""So many of the last ones are judged, and so many are kept to tell since when they come as often."""
MORE_OFTEN = 0.7
"""They come more often where their distance is this share of what it was."""
MAX_NAMES = 64
_EVALUATES = re.compile(r"(?<!ri)eval|valid|(^|[^a-z])test")
_TRAINS = re.compile(r"reward|rollout|policy|batch|step")
"""Names of evaluations that are a part of the training, or of a part of one."""
_EVALUATION = "the training is evaluated too often, or on too much, for what it takes"
_RARER = "Evaluate less often or on fewer examples; check whether the interval counts batches, updates or examples."
_SAVES = "the training is saved too often for what it takes"
_LATER = "Save less often, or in the background; check whether the interval counts batches, updates or examples."


class _Done(NamedTuple):
    """What one name took at one step, all of it, and when the last of it ended, in ns."""

    step: int
    took: int
    ended: int


class EvaluationTime:
    """Watches spans that evaluate or save; the time of several of one name at one step is added up."""

    KINDS: ClassVar[tuple[Kind, ...]] = (PERIODIC,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._done: dict[tuple[str, int], deque[_Done]] = {}
        self._total: dict[tuple[str, int], int] = {}
        self._reported: set[tuple[bool, int]] = set()
        """Whether it saves, and the rank."""

    def span(self, rank: int, span: Span) -> Found:
        """Evaluate a span."""
        if not _is_aside(span.name) or span.step is None or span.duration is None:
            return ()
        place, ended = (span.name, rank), span.time + span.duration
        done = self._done.get(place)
        if done is None:
            if len(self._done) >= MAX_NAMES:
                return ()
            done = self._done[place] = deque(maxlen=KEPT)
        found = None
        if done and done[-1].step == span.step:
            done[-1] = _Done(span.step, done[-1].took + span.duration, ended)
        else:
            found = self._judge(place, done)
            done.append(_Done(span.step, span.duration, ended))
        self._total[place] = self._total.get(place, 0) + span.duration
        return () if found is None else (found,)

    def _judge(self, place: tuple[str, int], done: deque[_Done]) -> Finding | None:
        (name, rank), run = place, self._run
        saves = traits(name).saving
        if len(done) <= OFTEN or (saves, rank) in self._reported:
            return None
        recent = list(islice(reversed(done), OFTEN + 1))
        took, since = sum(each.took for each in recent[:-1]), recent[0].ended - recent[-1].ended
        share, total = took / max(since, 1), self._total[place] / max(recent[0].ended - run.begun, 1)
        if share < SHARE or total < IN_ALL or self._total[place] < SECONDS * 1e9:
            return None
        self._reported.add((saves, rank))
        every = median(_gaps(done[-OFTEN - 1].step, done))
        begun = _since(done, every)
        earlier = [b.step - a.step for a, b in pairwise(each for each in done if each.step <= begun)]
        before = median(earlier[:-1] or earlier) if earlier else 0.0  # the last one ends where it begins
        often = f", every {before:g} before" if every < MORE_OFTEN * before else ""
        text = (
            f"{name} takes {share:.0%} of the time since step {begun}: {seconds(took / 1e9 / OFTEN)} every {every:g} "
            f"step{'s' * (every != 1)}{often}"
        )
        return PERIODIC.finding(
            text,
            recent[0].ended,
            step=begun,
            last=recent[0].step,
            ranks=(rank,),
            span=name,
            value=share,
            expected=(0.0, SHARE),
            cause=_SAVES if saves else _EVALUATION,
            advice=_LATER if saves else _RARER,
            weight=share,
        )


@lru_cache(maxsize=4096)
def _is_aside(name: str) -> bool:
    lower = name.lower()
    last = lower.rsplit(".", 1)[-1]
    return traits(name).saving or (bool(_EVALUATES.search(lower)) and not _TRAINS.search(last))


def _gaps(first: int, done: deque[_Done]) -> Iterator[int]:
    return (b.step - a.step for a, b in pairwise(each for each in done if each.step >= first))


def _since(done: deque[_Done], every: float) -> int:
    """Return the first step from which they come as often as lately."""
    begun = done[-1].step
    for after, before in pairwise(reversed(done)):
        if after.step - before.step > every / MORE_OFTEN:
            break
        begun = before.step
    return begun
