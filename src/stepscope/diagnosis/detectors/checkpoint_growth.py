"""Checkpoints: they are larger or take longer each time, or are no longer saved."""

from itertools import pairwise
from statistics import median
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, Steps, StepTimes, drop_rarest
from stepscope.diagnosis.finding import Finding, Kind, number, seconds
from stepscope.diagnosis.span_names import traits
from stepscope.model.names import ATTR_CHECKPOINT_BYTES, EVENT_CHECKPOINT, EVENT_CHECKPOINT_MEASURED
from stepscope.model.records import Event, Span

GROWTH = Kind(
    "checkpoint_growth",
    "WARN",
    "the checkpoint grows, or the file system it is written to fills up",
    "Look at the size of checkpoints and at what is added to them.",
    lasts=True,
)
OLD = Kind(
    "checkpoint_old",
    "WARN",
    "checkpoints were saved at an interval and no longer are: an exception that is caught, a condition, a full disk",
    "Look at the logs of the last save; a crash now costs all steps since then.",
    lasts=True,
)
MAX_INTERVALS, MIN_OLD_SECONDS = 3.0, 60.0
"""The last checkpoint is this many times the longest interval between two old, and so many seconds."""
MIN_SAVES = 4
LEAST = 6
"""The number of checkpoints needed."""
MIN_BUSY = 12
"""As many on a busy machine, if only their times tell: six that vary as they like rise one time in twenty."""
GROWN = 1.5
"""The last checkpoint is so many times as large as the first."""
REMEMBERED = 64
MAX_NAMES, MAX_OF_RANK = 1024, 8
"""The most pairs of span name and rank: the first, or the second for each rank. The rarest are dropped."""


class CheckpointGrowth:
    """Watches the spans that save checkpoints, and the checkpoints that programs record."""

    KINDS: ClassVar[tuple[Kind, ...]] = (GROWTH, OLD)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._saves: dict[tuple[str, int], list[tuple[int, float]]] = {}
        self._reported: set[tuple[str, int]] = set()
        self._saved: list[tuple[int, int]] = []
        """The last checkpoints of any rank: their steps and times, one for each step."""
        self._is_old = False
        self._sizes: dict[int, list[tuple[int, int]]] = {}
        """By rank: the steps and sizes of its last checkpoints."""
        self._large: set[int] = set()

    def usual(self, ahead: Steps) -> int:
        """Count all steps while the age of a checkpoint is not judged."""
        return len(ahead.steps) if self._is_old or len(self._saved) < MIN_SAVES else 0

    def learn(self, taken: Steps) -> None:
        """Do nothing: nothing is known of checkpoints yet."""

    def step(self, times: StepTimes) -> Found:
        """Compare the age of the last checkpoint with the interval between the ones before."""
        if self._is_old or len(self._saved) < MIN_SAVES:
            return ()
        last, saved = self._saved[-1]
        age, ages = times.ended - saved, [b - a for (_, a), (_, b) in pairwise(self._saved)]
        steps = [b - a for (a, _), (b, _) in pairwise(self._saved)]
        if age < max(MAX_INTERVALS * max(ages), MIN_OLD_SECONDS * 1e9):
            return ()
        if times.step - last < MAX_INTERVALS * max(steps):
            return ()
        self._is_old = True
        text = (
            f"the last checkpoint was saved at step {last}, {seconds(age / 1e9)} ago; before, there was one every "
            f"{round(median(steps))} steps"
        )
        found = OLD.finding(
            text,
            times.ended,
            step=last,
            last=times.step,
            value=age / 1e9,
            expected=(0.0, max(ages) / 1e9),
        )
        return (found,)

    def event(self, rank: int, event: Event) -> Found:
        """Take note of a recorded checkpoint."""
        if event.name == EVENT_CHECKPOINT and event.step is not None:
            self._note(event.step, event.time)
        elif event.name == EVENT_CHECKPOINT_MEASURED and self._saved:
            return self._sized(rank, self._saved[-1][0], event.attrs.get("bytes"), event.time)
        return ()

    def _sized(self, rank: int, step: int, size: object, time: int) -> tuple[Finding, ...]:
        """Compare the size of a checkpoint with those before it; a busy machine does not change it."""
        if not isinstance(size, int) or size <= 0 or rank in self._large:
            return ()
        if rank not in self._sizes:
            drop_rarest(self._sizes, max(MAX_NAMES, self._run.world), len)
        sizes = self._sizes.setdefault(rank, [])
        sizes.append((step, size))
        del sizes[:-REMEMBERED]
        held = [each for _, each in sizes]
        if len(held) < LEAST or held[-1] < GROWN * held[0] or any(b < a for a, b in pairwise(held)):
            return ()
        if sum(b > a for a, b in pairwise(held[-LEAST:])) < LEAST - 1:
            return ()  # a part was added to them, once
        self._large.add(rank)
        first, mb = sizes[0][0], 1e-6
        text = f"each checkpoint is larger than the one before: {number(held[0] * mb)} MB at step {first}, "
        found = GROWTH.finding(
            f"{text}{number(held[-1] * mb)} MB at step {step}",
            time,
            step=first,
            last=step,
            ranks=(rank,),
            value=float(held[-1]),
            expected=(0.9 * held[0], 1.1 * held[0]),
            cause="something that grows is saved with the weights: a history, a buffer, a list of losses or tensors",
            weight=held[-1] / held[0],
        )
        return (found,)

    def _note(self, step: int, time: int) -> None:
        if not self._saved or self._saved[-1][0] < step:
            self._saved = [*self._saved[-REMEMBERED:], (step, time)]

    def span(self, rank: int, span: Span) -> Found:
        """Compare a checkpoint span with the first ones."""
        if not traits(span.name).saving or span.step is None or span.duration is None:
            return ()
        place = (span.name, rank)
        if place not in self._saves and drop_rarest(self._saves, max(MAX_NAMES, MAX_OF_RANK * self._run.world), len):
            self._reported &= self._saves.keys()
        self._note(span.step, span.time + span.duration)
        if larger := self._sized(rank, span.step, span.attrs.get(ATTR_CHECKPOINT_BYTES), span.time):
            return larger
        saves = self._saves.setdefault(place, [])
        saves.append((span.step, span.duration / 1e9))
        del saves[:-REMEMBERED]
        took = [each for _, each in saves]
        if len(took) < LEAST or place in self._reported:
            return ()
        if len(took) < MIN_BUSY and self._run.busy(rank):
            return ()
        rising = sum(b > a for a, b in pairwise(took)) / (len(took) - 1)
        if took[-1] < 1.8 * took[0] or rising < 0.8 or median(took[-2:]) < 1.4 * median(took[:3]):
            return ()
        self._reported.add(place)
        first = saves[0][0]
        text = (
            f"{span.name} takes longer each time: {seconds(took[0])} at step {first}, {seconds(took[-1])} at "
            f"step {span.step}"
        )
        found = GROWTH.finding(
            text,
            span.time + span.duration,
            step=first,
            last=span.step,
            ranks=(rank,),
            span=span.name,
            value=took[-1],
            expected=(took[0] * 0.7, took[0] * 1.4),
            weight=took[-1] / took[0],
        )
        return (found,)
