"""Groups spans into steps: the self time of each span name in each step of each rank."""

from collections import deque
from collections.abc import Callable
from statistics import median

from stepscope.diagnosis.detector import RunState, Steps, StepTimes, drop_rarest
from stepscope.diagnosis.span_names import traits
from stepscope.model.names import ATTR_SAMPLED
from stepscope.model.records import Span

OPEN_STEPS = 64
"""Steps that have not ended are kept for each rank, and steps that not all ranks have ended."""
RENEW = 8
MAX_SPANS = 50_000
"""The most spans of unfinished steps; beyond that the largest of them loses its oldest and shortest ones."""


class _OpenStep:
    """The spans of an unfinished step: self times by name, and the times of children still to be subtracted."""

    __slots__ = ("count", "inside", "names", "own", "sampled")

    def __init__(self) -> None:
        self.count = 0
        self.sampled = False
        self.own: dict[str, int] = {}
        self.inside: dict[bytes, int] = {}
        self.names: dict[bytes, str] = {}


class Timing:
    """Calls back when the root span of a rank's step has ended, and when all ranks have finished the step."""

    def __init__(
        self,
        run: RunState,
        on_step: Callable[[StepTimes], None],
        on_row: Callable[[dict[int, StepTimes]], None],
    ) -> None:
        self._run, self._on_step, self._on_row = run, on_step, on_row
        self._open: dict[tuple[int, int], _OpenStep] = {}
        self._spans = 0
        """How many spans the open steps have, at most."""
        self._rows: dict[int, dict[int, StepTimes]] = {}
        self._totals: dict[int, deque[float]] = {}
        self._steps: dict[int, int] = {}
        self._sampling: set[int] = set()
        """Ranks of which the phases of only some steps are timed."""

    def take(self, rank: int, span: Span) -> None:
        """Add a span that ended within a step."""
        step, duration = span.step, span.duration
        if step is None or duration is None:
            return
        place = (rank, step)
        spans = self._open.get(place)
        if spans is None:
            spans = self._open[place] = _OpenStep()
            if len(self._open) > OPEN_STEPS * max(self._run.world, 1):
                self._drop_oldest()
        self._spans += 1
        if self._spans > MAX_SPANS:
            self._make_room()
        parent, name, own, number = span.parent_id, span.name, spans.own, span.span_id
        if span.attrs and ATTR_SAMPLED in span.attrs:
            spans.sampled = True
            self._sampling.add(rank)
        alone = duration - spans.inside.pop(number, 0)
        own[name] = own.get(name, 0) + (alone if alone > 0 else 0)
        spans.names[number] = name
        spans.count += 1
        if parent is not None:
            ended = spans.names.get(parent)
            if ended is None:
                spans.inside[parent] = spans.inside.get(parent, 0) + duration
            else:
                own[ended] = max(own.get(ended, 0) - duration, 0)
        elif traits(name).step:
            del self._open[place]
            self._spans -= spans.count
            partial = rank in self._sampling and not spans.sampled
            if partial:  # its own time is that of its phases, too
                del own[name]
            took = {each: at / 1e9 for each, at in own.items()}
            self._end(StepTimes(rank, step, span.time, duration / 1e9, took, partial))

    def is_between(self, rank: int) -> bool:
        """Return whether no step is open, the phases of all are timed, and the usual time of one is known."""
        return not self._open and rank not in self._sampling and len(self._totals.get(rank, ())) >= RENEW

    def learn(self, steps: Steps) -> None:
        """Take whole steps of a run with one rank at once, without calling back."""
        totals, before = self._totals[steps.rank], self._steps[steps.rank]
        count = self._steps[steps.rank] = before + len(steps.took)
        renewed = count - count % RENEW - before - 1
        """The index of the last step at which the usual time is renewed, from the steps before it."""
        if renewed >= 0:
            totals.extend(steps.took[:renewed])
            self._run.usual_step = median(totals)
        totals.extend(steps.took[max(renewed, 0) :])

    def _drop_oldest(self) -> None:
        self._spans -= self._open.pop(next(iter(self._open))).count

    def _make_room(self) -> None:
        """Drop the older half of the spans of the largest open step, and the shorter half of their sums."""
        largest = max(self._open.values(), key=lambda each: each.count)
        before = largest.count
        largest.names = dict(list(largest.names.items())[before // 2 :])
        drop_rarest(largest.inside, MAX_SPANS // 2, int)
        drop_rarest(largest.own, MAX_SPANS // 2, int)
        largest.count = len(largest.names)
        self._spans -= before - largest.count

    def _end(self, times: StepTimes) -> None:
        run, rank = self._run, times.rank
        totals = self._totals.get(rank)
        if totals is None:
            totals = self._totals[rank] = deque(maxlen=100)
        count = self._steps[rank] = self._steps.get(rank, 0) + 1
        if len(totals) < 5:
            run.usual_step = times.took
        elif len(totals) < RENEW or count % RENEW == 0:
            run.usual_step = median(totals)
        self._on_step(times)
        totals.append(times.took)
        if run.world > 1:
            row = self._rows.setdefault(times.step, {})
            row[rank] = times
            if len(row) >= run.world:
                del self._rows[times.step]
                self._on_row(row)
            while len(self._rows) > OPEN_STEPS:
                self._rows.pop(min(self._rows))
