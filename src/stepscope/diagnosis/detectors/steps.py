"""Duplicate steps without a restart, and missing steps."""

from collections import deque
from typing import ClassVar, Literal

from stepscope.diagnosis.detector import RunState, Values, leading
from stepscope.diagnosis.finding import Finding, Kind
from stepscope.diagnosis.series_history import Series

DUPLICATE = Kind(
    "duplicate_steps",
    "WARN",
    "the loop went back without a restart, or two processes write as one rank",
    "Check for two processes with the same rank, and that the step counter increases.",
    explains=("missing_steps",),
)
MISSING = Kind(
    "missing_steps",
    "WARN",
    "records were lost, or the step jumped",
    "Check the counts of dropped records, and how the step is incremented.",
)
REPEATED = 3
"""This many steps must be repeated..."""
CLEAN = 20
"""... after this many that were not."""
REGULAR = 30
"""Steps must have been regular for this many values before..."""
GAP = 10
"""... a gap that is this many times wider."""
REMEMBERED = 512


class Steps:
    """Watches the steps of one loss or reward."""

    KINDS: ClassVar[tuple[Kind, ...]] = (DUPLICATE, MISSING)
    ROLES: ClassVar[tuple[str, ...]] = ("loss", "reward")
    HELD_OUT: ClassVar[bool | None] = False
    EACH: ClassVar[Literal["value", "block"]] = "value"

    __slots__ = (
        "_attempt", "_begun", "_clean", "_highest", "_last", "_regular", "_repeats", "_reported", "_run", "_seen",
        "_series", "_spacing",
    )  # fmt: skip

    def __init__(self, series: Series, run: RunState) -> None:
        self._series, self._run, self._attempt = series, run, run.attempt
        self._seen: deque[int] = deque(maxlen=REMEMBERED)
        self._repeats = self._clean = self._regular = self._begun = 0
        self._spacing: int | None = None
        self._last = self._highest = -(10**18)
        self._reported: set[str] = set()

    def usual(self, ahead: Values) -> int:
        """Count the next steps that are new and as far apart as those before."""
        last, spacing = self._last, self._spacing
        if spacing is None or spacing <= 0 or last != self._highest or self._run.attempt != self._attempt:
            return 0
        following = range(last + spacing, last + spacing * (len(ahead.steps) + 1), spacing)
        return leading(a == b for a, b in zip(ahead.steps, following, strict=True))

    def learn(self, taken: Values) -> None:
        """Take steps that are regular."""
        self._last = self._highest = taken.steps[-1]
        self._seen.extend(taken.steps)
        self._clean += len(taken.steps)
        self._regular += len(taken.steps)

    def take(self) -> Finding | None:
        """Evaluate the step of a value."""
        step = self._series.step
        if self._run.attempt != self._attempt:
            self._restart()
        last, self._last = self._last, step
        seen = self._seen
        if step > self._highest:
            self._highest = step
            seen.append(step)
            self._clean += 1
            if step - last == self._spacing:
                self._regular += 1
                return None
            return self._gap(step, last)
        if step == last or step in seen:
            return self._duplicate(step)
        seen.append(step)
        self._clean += 1
        self._regular = 0
        return None

    def _restart(self) -> None:
        self._attempt, self._repeats, self._regular = self._run.attempt, 0, 0
        self._last = self._highest = -(10**18)
        self._seen.clear()

    def _duplicate(self, step: int) -> Finding | None:
        if self._clean < CLEAN:
            self._clean = 0
            return None
        self._repeats += 1
        if self._repeats == 1:
            self._begun = step
        if self._repeats != REPEATED or "duplicate" in self._reported:
            return None
        self._reported.add("duplicate")
        series = self._series
        text = f"{series.key} has been recorded a second time at the same steps since step {self._begun}"
        return DUPLICATE.finding(
            text,
            series.time,
            step=self._begun,
            last=step,
            ranks=(series.rank,),
            key=series.key,
            expects=f"each step once, and next a step above {self._highest}",
            attempt=self._run.attempt,
        )

    def _gap(self, step: int, last: int) -> Finding | None:
        if last < -(10**17):
            return None
        spacing = step - last
        regular, usual, self._regular, self._spacing = self._regular, self._spacing, 0, spacing
        if usual is None or regular < REGULAR or spacing < GAP * usual or "gap" in self._reported:
            return None
        self._reported.add("gap")
        self._spacing, self._regular = usual, regular
        series = self._series
        often = f"every {usual} steps" if usual > 1 else "at every step"
        text = f"{series.key} has no values between steps {last} and {step}; before, it had one {often}"
        return MISSING.finding(
            text,
            series.time,
            step=last,
            last=step,
            ranks=(series.rank,),
            key=series.key,
            expects=f"a value {often}, the next at step {last + usual}",
        )
