"""Attempts that did not end well: which rank died, at which step, of what, and where the next attempt went on."""

from collections.abc import Sequence

from stepscope.hub.questions.evidence import Evidence, Failure, Finding, Process

WELL = ("finished", "preempted")
"""What a process says at a good end."""
BADLY = ("failed", "crashed")
MOST_ERRORS = 5


def crashes(evidence: Evidence) -> list[Finding]:
    """Find attempts that crashed or failed, and failures that did not end one."""
    attempts = sorted({process.attempt for process in evidence.processes})
    told = _told_once(evidence.failures)
    found, ended = [], set()
    for attempt in attempts:
        newest = attempt == attempts[-1]
        bad = [each for each in evidence.processes if each.attempt == attempt and each.said not in WELL]
        if any(each.unread and each.said is None for each in bad):
            continue  # its end may be among what is still to be read
        if not bad or (newest and evidence.state not in BADLY):
            continue
        ended.add(attempt)
        failures = [each for each in told if each.attempt == attempt]
        found.append(_crash(attempt, bad, failures, evidence))
    return found + _errors([each for each in told if each.attempt not in ended])


def _told_once(failures: Sequence[Failure]) -> list[Failure]:
    """Failures without the spans that failed because of an exception that was told itself."""
    thrown = {(each.attempt, each.rank, each.step) for each in failures if each.span is None}
    thrown |= {(attempt, rank, None) for attempt, rank, _ in thrown}
    places = ((each, (each.attempt, each.rank, each.step)) for each in failures)
    return [each for each, place in places if each.span is None or place not in thrown]


def _crash(attempt: int, bad: Sequence[Process], failures: Sequence[Failure], evidence: Evidence) -> Finding:
    own = [each for each in evidence.processes if each.attempt == attempt]
    silent = [each for each in bad if each.said is None]
    first = min(failures, key=lambda each: (each.span is not None, each.time), default=None)
    said = f" ({first.what} on rank {first.rank})" if first is not None else ""
    if silent and (len(silent) < len(own) or first is None):
        rank, reason = silent[0].rank, f"rank {silent[0].rank} died without a word{said}"
    elif first is not None:
        rank, reason = first.rank, f"rank {first.rank} failed with {first.what}"
    else:
        rank, reason = bad[0].rank, f"rank {bad[0].rank} said that it {bad[0].said or 'died'}"
    steps = [each.last_step for each in own if each.rank == rank and each.last_step is not None]
    step = max(steps, default=None)
    place = f" at step {step}" if step is not None else ""
    text = f"attempt {attempt} crashed{place}: {reason}{_resumed(attempt, step, evidence)}"
    return Finding(
        "crash", "FATAL", text, step, step, step, rank, tuple(sorted({each.rank for each in bad})),
        span=first.span if first is not None else None, attempt=attempt, weight=1.0,
    )  # fmt: skip


def _resumed(attempt: int, step: int | None, evidence: Evidence) -> str:
    later = [number for number in evidence.first_steps if number > attempt]
    if not later:
        newer = any(process.attempt > attempt for process in evidence.processes)
        return "; it was started again" if newer else ""
    start = evidence.first_steps[min(later)]
    again = step - start + 1 if step is not None else 0
    repeated = f", {again} step{'s' * (again > 1)} were done again" if again > 0 else ""
    return f"; attempt {min(later)} resumed at step {start}{repeated}"


def _errors(failures: Sequence[Failure]) -> list[Finding]:
    """Failures that the run survived, one finding for each thing that was said."""
    groups: dict[tuple[str | None, str], list[Failure]] = {}
    for failure in sorted(failures, key=lambda each: each.time):
        groups.setdefault((failure.span, failure.what), []).append(failure)
    return [_error(group) for group in list(groups.values())[:MOST_ERRORS]]


def _error(group: list[Failure]) -> Finding:
    head = group[0]
    ranks = tuple(sorted({each.rank for each in group}))
    steps = [each.step for each in group if each.step is not None]
    place = f" at step {head.step}" if head.step is not None else ""
    more = f", {len(group)} times in all" if len(group) > 1 else ""
    what = f"{head.span} failed: {head.what}" if head.span else head.what
    return Finding(
        "error", "ERROR", f"{what}{place} on rank {head.rank}{more}",
        head.step, min(steps, default=None), max(steps, default=None), head.rank if len(ranks) == 1 else None, ranks,
        span=head.span, attempt=head.attempt, weight=float(len(group)),
    )  # fmt: skip
