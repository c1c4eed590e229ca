"""The attempts of a run together: restarts that come no further, too many of them, and a machine that fails again."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping

from stepscope.diagnosis.ending import ranks_in_words
from stepscope.diagnosis.finding import Finding, Kind, seconds

NO_PROGRESS = Kind(
    "no_progress",
    "ERROR",
    "each attempt ends before it comes further than the last: the same failure at the same place, or no checkpoint",
    "Look at how the attempts end; check that checkpoints are written and read, and skip the data at which it fails.",
    expects="a restart that comes further than the attempt before it",
)
STORM = Kind(
    "restart_storm",
    "WARN",
    "the run fails soon after each start",
    "Look at the end of the first attempt; stop the restarts until its cause is found.",
)
SUSPECT = Kind(
    "suspect_host",
    "WARN",
    "the same machine is the first to fail in each attempt: its GPU, memory, disk or network",
    "Start again without that machine, and test it before it gets work again.",
    expects="attempts that fail on no machine in particular",
    rules_out="a fault of the program alone: the other machines of the run did not fail first",
)
MIN_RESTARTS = 3
"""So many restarts in a row that come no further are no progress; so many failures on one machine make it suspect."""
MIN_STARTS, STORM_NS = 5, 1_800_000_000_000
"""So many starts of attempts that failed, within this time, are a storm."""


def stuck(reached: Mapping[int, int], failed: Mapping[int, int], begun: int) -> Iterator[Finding]:
    """Judge the furthest step of each attempt, those that failed, and when the newest began."""
    furthest, idle = -1, 0
    for number in sorted(reached):
        idle = 0 if reached[number] > furthest else idle + (number in failed)
        furthest = max(furthest, reached[number])
    if idle >= MIN_RESTARTS:
        text = f"{idle} restarts have come no further than step {furthest}"
        last = max((*reached, *failed))
        yield NO_PROGRESS.finding(text, begun, step=furthest, value=float(idle), attempt=last, weight=float(idle))


def storm(starts: list[int], last: int) -> Iterator[Finding]:
    """Judge the times at which attempts began that failed, in order."""
    most = max((_within(starts, at) for at in range(len(starts))), default=0)
    if most >= MIN_STARTS:
        first = next(at for at in range(len(starts)) if _within(starts, at) == most)
        lasted = seconds((starts[first + most - 1] - starts[first]) / 1e9)
        text = f"{most} attempts that failed were started within {lasted}"
        yield STORM.finding(text, starts[first], value=float(most), expected=(0.0, MIN_STARTS - 1.0), attempt=last)


def suspects(places: Mapping[int, tuple[str, int]], hosts: int, time: int) -> Iterator[Finding]:
    """Judge the machine and rank that failed first in each attempt, of a run on several machines."""
    counts = Counter(host for host, _ in places.values() if host)
    if hosts < 2 or not counts:
        return
    host, times = counts.most_common(1)[0]
    if times < MIN_RESTARTS or times < 0.8 * len(places):
        return
    last = max(places)
    ranks = sorted({rank for where, rank in places.values() if where == host})
    text = f"{times} of {len(places)} attempts failed first on {host} ({ranks_in_words(ranks)})"
    yield SUSPECT.finding(text, time, ranks=ranks, value=float(times), attempt=last, weight=float(times))


def _within(starts: list[int], first: int) -> int:
    """Return how many starts, from one on, are within the time of a storm."""
    return bisect_right(starts, starts[first] + STORM_NS) - first
