"""Folds symptoms into the finding that explains them, so that one cause gives one finding."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from stepscope.diagnosis.finding import SEVERITIES, Finding, Kind
from stepscope.diagnosis.roles import measure

Kinds = Mapping[str, Kind]

_ENDS = frozenset(("crash", "dead_rank"))
"""Kinds that explain only findings of their own attempt."""
BEFORE = 3
"""A symptom may begin this many steps before its cause."""
LASTING = 10
"""Loading that is slow for this many steps explains a slowdown, one slow batch does not."""
NEAR = 8
"""Symptoms of causes that do not last begin within this many steps."""
_HANGS = frozenset(("hang", "collective_mismatch"))
LAST_RECORD_NS = 1_500_000_000
"""The last record of a process that ended comes at most this long after the progress that it ended."""
_DATED_EARLY = {
    "throughput_loss": 40,
    "slow_link": 40,
    "divergence": 24,
    "reward_collapse": 12,
    "level_shift": 16,
    "overfit": 60,
}
"""Kinds that are dated by blocks of values: they may begin this many steps before their cause."""
_SAMPLED = frozenset(("stuck_batch", "gradients_not_cleared"))
SAMPLES_APART = 64
"""What is seen in samples alone may have begun so many steps before, as its symptoms tell."""
_STALLS = frozenset(("data_stall", "slow_span", "periodic_stall"))
_LATE = frozenset(("straggler", "intermittent_straggler"))
PARTS, NAMED = 3, 5
"""So many findings that differ in one part of the name of their metric are one, whose text has so many of the names."""
TOGETHER = 6
"""So many findings of one kind that begin together are one, whatever their metrics are named."""
_WORDS = re.compile(r"[/._\-]+|(?<=\D)(?=\d)|(?<=\d)(?=\D)")
"""Where the words and numbers of a name are apart."""
JUMPS = 3.0
"""A jump to so many times what a slow rise had reached is none of its symptoms."""
MILDER = 3.0
"""A finding about lost time is not explained by one that costs less than a third of it."""


def fold(findings: Iterable[Finding], kinds: Kinds, hosts: Mapping[int, str]) -> list[Finding]:
    """Merge equal findings of several ranks, then fold symptoms into causes; sorted by start."""
    merged = _slow_hosts(_over_ranks(_of_clocks(findings, hosts), kinds), hosts)
    merged = _over_parts(merged)
    merged.sort(key=_began)
    kept = list(merged)
    for cause in sorted(merged, key=lambda each: (-len(_explained_by(each, kinds)), _began(each))):
        if cause not in kept or not _explained_by(cause, kinds):
            continue
        symptoms = [each for each in kept if each is not cause and _explains(cause, each, kinds)]
        if symptoms:
            words = (*cause.symptoms, *(each.text for each in symptoms))
            keys = dict.fromkeys((*cause.also, *(each.key for each in symptoms if each.key and each.key != cause.key)))
            kept = [each for each in kept if each not in symptoms]
            kept[kept.index(cause)] = replace(_dated_by(cause, symptoms), symptoms=words[:16], also=tuple(keys)[:16])
    return sorted(_begun_together(kept, kinds), key=_began)


def _dated_by(cause: Finding, symptoms: Iterable[Finding]) -> Finding:
    """Return a finding of samples with the step at which its first symptom tells that it began."""
    first = min((each.step for each in symptoms if each.step is not None), default=cause.step)
    if cause.kind not in _SAMPLED or cause.step is None or first is None or first >= cause.step:
        return cause
    return replace(cause, step=first, text=f"{cause.text}, and it shows since step {first}")


def _of_clocks(findings: Iterable[Finding], hosts: Mapping[int, str]) -> list[Finding]:
    """Drop clock skew between ranks of one machine, which share its clock."""
    machines = set(hosts.values())
    alone = len(machines) == 1 and machines != {""}
    return [each for each in findings if not (alone and each.kind == "clock_skew")]


def _began(finding: Finding) -> tuple[float, int]:
    return (finding.step if finding.step is not None else -1, finding.time)


def _explained_by(finding: Finding, kinds: Kinds) -> tuple[str, ...]:
    kind = kinds.get(finding.kind)
    return kind.explains if kind is not None else ()


def _lasts(finding: Finding, kinds: Kinds) -> bool:
    kind = kinds.get(finding.kind)
    return kind is not None and kind.lasts


def _explains(cause: Finding, other: Finding, kinds: Kinds) -> bool:
    if other.kind not in _explained_by(cause, kinds):
        return False
    if cause.kind in _ENDS and cause.attempt != other.attempt:
        return False
    if _is_hang_and_end(cause, other):
        return _came_before(cause, other)
    if cause.step is None or other.step is None:
        return True
    if cause.kind == other.kind == "slow_span" and (cause.step != other.step or _lost(cause) < _lost(other)):
        return False
    if cause.kind == "data_stall" and other.kind == "throughput_loss":
        return (cause.last or 0) - cause.step >= LASTING and abs(cause.step - other.step) <= 40
    if not _explains_lost_time(cause, other) or _is_worse_slowdown(cause, other):
        return False
    if cause.kind == other.kind == "not_finite":
        return abs(cause.step - other.step) <= BEFORE and _source(cause) < _source(other)
    if cause.kind == other.kind == "spike" and _leads(other) and not _leads(cause):
        return False
    if not _comes_first(cause, other) or _is_worse_later(cause, other):
        return False
    window = max(_DATED_EARLY.get(other.kind, BEFORE), SAMPLES_APART if cause.kind in _SAMPLED else 0)
    if other.step < cause.step - window:
        return False
    return _lasts(cause, kinds) or other.step <= (cause.last or cause.step) + NEAR


def _comes_first(cause: Finding, other: Finding) -> bool:
    """Return whether a spike and a lasting level are cause and symptom in this order.

    A bad batch may damage the weights, so that a higher level follows its spike. A slow rise explains no sudden jump.
    """
    if cause.kind == "spike" and other.kind == "level_shift":
        return (cause.step or 0) < (other.step or 0)
    if cause.kind == "level_shift" and other.kind == "spike":
        return (cause.step or 0) <= (other.step or 0)
    if cause.key != other.key:
        return True
    if cause.kind == "divergence" and other.kind in ("spike", "level_shift") and (other.step or 0) > (cause.last or 0):
        return abs(other.value or 0.0) < JUMPS * abs(cause.value or 0.0)
    return True


def _is_worse_later(cause: Finding, other: Finding) -> bool:
    """Return whether a warning was found long before a loss diverged, which it would hide."""
    return cause.severity == "WARN" and other.kind == "divergence" and (other.step or 0) > (cause.step or 0) + NEAR


def _is_hang_and_end(a: Finding, b: Finding) -> bool:
    """Return whether one is a hang and the other the end of a process; their times decide, not their steps."""
    return (a.kind in _HANGS and b.kind in _ENDS) or (a.kind in _ENDS and b.kind in _HANGS)


def _came_before(cause: Finding, other: Finding) -> bool:
    """Return whether a process ended before others hung, or hung, all the time alive, before it ended."""
    if cause.kind in _ENDS:
        return cause.time <= other.time + LAST_RECORD_NS
    return cause.attempt == other.attempt and other.time > cause.time + LAST_RECORD_NS


def _explains_lost_time(cause: Finding, other: Finding) -> bool:
    """Return whether a cause explains a rank's lost time: it is on that rank, or on one that it waited for."""
    if cause.kind not in _STALLS | _LATE or other.kind not in _STALLS | _LATE:
        return True
    if other.kind in _STALLS and _lost(other) > MILDER * _lost(cause):
        return False
    if not set(cause.ranks).isdisjoint(other.ranks):
        return True
    return other.kind in _STALLS and other.step == cause.step and _lost(other) <= _lost(cause)


def _is_worse_slowdown(first: Finding, other: Finding) -> bool:
    """Return whether a slowdown came after a mild one, which is no reason for it."""
    if not first.kind == other.kind == "throughput_loss" or (other.step or 0) <= (first.step or 0):
        return False
    return SEVERITIES.index(other.severity) < SEVERITIES.index(first.severity) or other.weight > MILDER * first.weight


def _lost(finding: Finding) -> float:
    """Return by how much a span exceeded the expected duration."""
    return (finding.value or 0.0) - (finding.expected[1] if finding.expected else 0.0)


def _source(finding: Finding) -> tuple[int, int, bool]:
    """Return the sort key that finds the origin of non-finite values: the first, on the fewest ranks, a loss."""
    return finding.step or 0, len(finding.ranks), "loss" not in (finding.key or "")


def _leads(finding: Finding) -> bool:
    return finding.severity == "ERROR"


def _over_ranks(findings: Sequence[Finding], kinds: Kinds) -> list[Finding]:
    """Merge findings with the same kind, key and span at about the same step on several ranks."""
    merged: list[Finding] = []
    for finding in sorted(findings, key=_began):
        at = next((at for at, each in enumerate(merged) if _alike(each, finding, kinds)), None)
        if at is None:
            merged.append(finding)
            continue
        each = merged[at]
        ranks = tuple(sorted({*each.ranks, *finding.ranks}))
        last = max((step for step in (each.last, finding.last) if step is not None), default=None)
        text = finding.text if finding.kind == "periodic_stall" or finding.weight > 1.5 * each.weight else each.text
        kind_text = finding if text is finding.text else each
        merged[at] = replace(
            each,
            ranks=ranks,
            last=last,
            text=text,
            value=kind_text.value,
            symptoms=tuple(dict.fromkeys((*each.symptoms, *finding.symptoms))),
            also=tuple(dict.fromkeys((*each.also, *finding.also))),
            weight=max(each.weight, finding.weight),
        )
    return merged


def _over_parts(findings: Sequence[Finding]) -> list[Finding]:
    """Merge findings of one kind about many layers, experts or groups of parameters into one that names them."""
    return _merged(findings, _is_another_part, PARTS)


def _begun_together(findings: Sequence[Finding], kinds: Kinds) -> list[Finding]:
    """Merge findings of one kind that begin together: some whose names are alike, or many with any names.

    Kinds that explain themselves have an origin, into which the others were folded.
    """
    origins: list[Finding] = []
    others: list[Finding] = []
    for each in findings:
        (origins if each.kind in _explained_by(each, kinds) else others).append(each)
    others = _merged(_merged(others, _is_another_name, PARTS), _is_other_data, 2)
    return [*origins, *_merged(others, _is_beside, TOGETHER)]


def _merged(findings: Sequence[Finding], alike: Callable[[Finding, Finding], bool], least: int) -> list[Finding]:
    """Merge findings that are like an earlier one, if they are at least so many."""
    groups: list[list[Finding]] = []
    for each in sorted(findings, key=_began):
        group = next((group for group in groups if alike(group[0], each)), None)
        if group is None:
            groups.append([each])
        else:
            group.append(each)
    return [each for group in groups for each in (_of_parts(group) if len(group) >= least else group)]


def _is_beside(a: Finding, b: Finding) -> bool:
    """Return whether two findings of one kind about different metrics of the same ranks begin together."""
    if not (a.key and b.key) or (a.kind, a.ranks, a.attempt, a.span) != (b.kind, b.ranks, b.attempt, b.span):
        return False
    if a.step is None or b.step is None or a.key == b.key:
        return False
    return abs(b.step - a.step) <= _DATED_EARLY.get(a.kind, NEAR)


def _is_other_data(a: Finding, b: Finding) -> bool:
    """Return whether findings are about one measure, of the training and of evaluations."""
    same = a.kind in ("level_shift", "not_learning") and measure(a.key or "") == measure(b.key or "")
    return same and _is_beside(a, b)


def _is_another_name(a: Finding, b: Finding) -> bool:
    """Return whether findings begin together and the names of their metrics differ in one word or number."""
    if not _is_beside(a, b):
        return False
    one, other = _WORDS.split(a.key or ""), _WORDS.split(b.key or "")
    return len(one) == len(other) > 1 and sum(x != y for x, y in zip(one, other, strict=True)) == 1


def _is_another_part(a: Finding, b: Finding) -> bool:
    """Return whether two findings are the same but for one part of the name of their metric."""
    if not (a.key and b.key) or (a.kind, a.ranks, a.attempt, a.span) != (b.kind, b.ranks, b.attempt, b.span):
        return False
    if a.step is not None and b.step is not None and b.step > (a.last or a.step) + _DATED_EARLY.get(a.kind, NEAR):
        return False
    one, other = a.key.split("/"), b.key.split("/")
    return len(one) == len(other) and len(one) > 1 and sum(x != y for x, y in zip(one, other, strict=True)) == 1


def _of_parts(group: list[Finding]) -> list[Finding]:
    """Return the worst of the findings, with the names of the others."""
    worst = min(group, key=lambda each: (SEVERITIES.index(each.severity), -each.weight))
    others = [each for each in group if each is not worst]
    keys = [each.key for each in others if each.key]
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    made = replace(
        worst,
        text=f"{worst.text}; the same in {', '.join(keys[:NAMED])}{more}",
        step=min((each.step for each in group if each.step is not None), default=None),
        last=max((each.last for each in group if each.last is not None), default=None),
        also=tuple(dict.fromkeys((*worst.also, *keys)))[:16],
        symptoms=tuple(dict.fromkeys(words for each in group for words in each.symptoms))[:16],
    )
    return [made]


def _alike(a: Finding, b: Finding, kinds: Kinds) -> bool:
    if (a.kind, a.key, a.span) != (b.kind, b.key, b.span) or a.attempt != b.attempt:
        return False
    if a.kind in ("straggler", "intermittent_straggler", "dead_rank", "clock_skew"):
        return a.ranks == b.ranks
    if a.step is None or b.step is None:
        return True
    if _is_worse_slowdown(a, b):
        return False
    return b.step <= (a.last or a.step) + NEAR or _lasts(a, kinds) or a.kind == "memory_creep"


def _slow_hosts(findings: list[Finding], hosts: Mapping[int, str]) -> list[Finding]:
    """Merge stragglers of one machine into one finding."""
    slow = [each for each in findings if each.kind in ("straggler", "intermittent_straggler")]
    groups: dict[str, list[Finding]] = {}
    for each in slow:
        groups.setdefault(hosts.get(each.ranks[0], ""), []).append(each)
    for host, group in groups.items():
        ranks = tuple(sorted({rank for each in group for rank in each.ranks}))
        if not host or len(ranks) < 2 or len(set(hosts.values())) < 2:
            continue
        head = min(group, key=_began)
        named = ", ".join(map(str, ranks))
        text = f"the ranks of {host} ({named}) have been slower than the others since step {head.step}: {head.span}"
        made = replace(
            head,
            kind="straggler",
            ranks=ranks,
            text=text,
            cause="something that these ranks share: the machine, its power, its network",
        )
        findings = [made if each is head else each for each in findings if each is head or each not in group]
    by_rank: dict[tuple[int, ...], Finding] = {}
    result = []
    for each in findings:
        if each.kind == "straggler" and each.ranks in by_rank:
            continue
        if each.kind == "straggler":
            by_rank[each.ranks] = each
        result.append(each)
    return result
