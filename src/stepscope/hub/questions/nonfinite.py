"""Values that are not finite: at which steps and on which ranks a metric was NaN or infinite, and which others too."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from stepscope.hub.questions.evidence import Course, Finding, Stretch, in_steps, on_ranks, too
from stepscope.journal.key_summary import importance

_WORDS = {1: "NaN", 2: "Infinity", 4: "-Infinity"}
_BESIDE = 2
"""Stretches that are so near each other have one finding together."""


@dataclass(frozen=True, slots=True)
class _Spell:
    """Steps in which a metric was not finite: all of them on one rank, or together on several."""

    first: int
    last: int
    flags: int
    bad: int
    ranks: tuple[int, ...]
    leaders: tuple[int, ...]
    """The ranks on which it began."""

    @property
    def extent(self) -> tuple[int, int, int, int]:
        """What it was, when, and how often, on whichever rank."""
        return self.first, self.last, self.flags, 0 if self.steady else self.bad

    @property
    def steady(self) -> bool:
        """Whether no step between the first and the last had a finite value."""
        return self.bad > self.last - self.first


def not_finite(courses: Sequence[Course], everyone: int) -> list[Finding]:
    """Find them: one finding for all metrics that were the same at the same steps, as the first of them was."""
    spells: dict[str, list[_Spell]] = {}
    for course in courses:
        spells.setdefault(course.key, []).extend(_spells(course))
    alike: dict[tuple[int, int, int, int], dict[str, _Spell]] = {}
    for key, found in spells.items():
        for spell in _over_ranks(found):
            alike.setdefault(spell.extent, {})[key] = spell
    return [_finding(each, everyone) for each in alike.values()]


def _spells(course: Course) -> list[_Spell]:
    """The spells of one metric on one rank."""
    made: list[list[Stretch]] = []
    before = 0
    for at, stretch in enumerate(course.stretches):
        if not stretch.bad:
            continue
        if made and at - before <= _BESIDE:
            made[-1].append(stretch)
        else:
            made.append([stretch])
        before = at
    return [_spell(course.rank, group) for group in made]


def _spell(rank: int, group: Sequence[Stretch]) -> _Spell:
    flags = reduce(or_, (stretch.flags for stretch in group))
    bad = sum(stretch.bad for stretch in group)
    return _Spell(group[0].bad_step, group[-1].last_bad_step, flags, bad, (rank,), (rank,))


def _over_ranks(spells: Iterable[_Spell]) -> list[_Spell]:
    """The spells of one metric with those of several ranks as one, where they overlap and the values were alike."""
    made: list[list[_Spell]] = []
    for spell in sorted(spells, key=lambda each: (each.flags, each.first, each.ranks)):
        if made and made[-1][0].flags == spell.flags and spell.first <= max(each.last for each in made[-1]):
            made[-1].append(spell)
        else:
            made.append([spell])
    return [_joined(group) for group in made]


def _joined(group: Sequence[_Spell]) -> _Spell:
    first, last = group[0].first, max(each.last for each in group)
    ranks = tuple(sorted({rank for each in group for rank in each.ranks}))
    leaders = tuple(sorted({rank for each in group if each.first == first for rank in each.ranks}))
    # Steady spells that overlap leave no step out; of others, the one with most values speaks.
    steady = all(each.steady for each in group)
    bad = max(last - first + 1, *(each.bad for each in group)) if steady else max(each.bad for each in group)
    return _Spell(first, last, group[0].flags, bad, ranks, leaders)


def _finding(spells: Mapping[str, _Spell], everyone: int) -> Finding:
    """Tell of the metric that says most; the others were the same, maybe on other ranks."""
    key, *also = sorted(spells, key=lambda each: (importance(each), each))
    spell = spells[key]
    words = " and ".join(word for flag, word in _WORDS.items() if spell.flags & flag)
    often = "" if spell.steady else f"{spell.bad} times "
    begun = f", first{on_ranks(spell.leaders, everyone)}" if spell.leaders != spell.ranks else ""
    where = f"{often}{in_steps(spell.first, spell.last)}{on_ranks(spell.ranks, everyone)}{begun}"
    rank = spell.ranks[0] if len(spell.ranks) == 1 else None
    return Finding(
        "not_finite", "ERROR", f"{key} was {words} {where}{too(also)}", spell.first, spell.first, spell.last, rank,
        spell.ranks, key=key, also=tuple(also), weight=float(spell.bad * len(spells) * len(spell.ranks)),
    )  # fmt: skip
