"""Slow link: a collective that takes longer on every rank."""

from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState, StepTimes, drop_rarest
from stepscope.diagnosis.detectors.throughput import Throughput
from stepscope.diagnosis.finding import Kind, seconds
from stepscope.diagnosis.roles import Role
from stepscope.diagnosis.series_history import Series
from stepscope.diagnosis.span_names import traits

SLOW_LINK = Kind(
    "slow_link",
    "WARN",
    "a slower link between the machines",
    "Check network counters and routes of the machines.",
    explains=("throughput_loss",),
    lasts=True,
    rules_out="one late rank: the time of the last one to arrive grew",
)

MAX_NAMES = 256
"""The most collectives; the rarest are dropped."""


class SlowLink:
    """Watches collectives: the last rank to arrive does not wait, so its time is the link's."""

    KINDS: ClassVar[tuple[Kind, ...]] = (SLOW_LINK,)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._links: dict[str, tuple[Series, Throughput]] = {}

    def row(self, row: dict[int, StepTimes]) -> Found:
        """Evaluate a step that all ranks have finished."""
        found = []
        newest = max(row.values(), key=lambda times: times.ended)
        for name in newest.own:
            if not traits(name).waiting or not all(name in times.own for times in row.values()):
                continue
            if name not in self._links:
                series = Series(name, -1, Role("step_time"))
                drop_rarest(self._links, MAX_NAMES, lambda link: link[0].count)
                self._links[name] = (series, Throughput.unweighed(series, self._run))
            series, watch = self._links[name]
            fastest = max(min(times.own[name] for times in row.values()), 1e-7)
            slower = watch.take() if series.add(newest.step, newest.ended, fastest) else None
            if slower is None or slower.value is None or slower.expected is None:
                continue
            if any(self._run.busy(rank) for rank in row):
                continue  # the ranks wait for a CPU, not for the link
            high = slower.expected[1]
            if slower.value - high < 0.02 * self._run.usual_step or slower.value < 1.15 * high:
                continue
            usual = seconds(sum(slower.expected) / 2)
            text = f"{name} has taken {seconds(slower.value)} on every rank since step {slower.step}, usually {usual}"
            made = SLOW_LINK.finding(
                text,
                newest.ended,
                step=slower.step,
                last=newest.step,
                ranks=sorted(row),
                span=name,
                value=slower.value,
                expected=slower.expected,
                weight=slower.weight,
            )
            found.append(made)
        return found
