"""The findings of a run so far; beyond a number of them the mildest are only counted."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from stepscope.diagnosis.finding import SEVERITIES, Finding

MAX_ALIKE = 64
"""The most findings of one kind on one metric or span of the same ranks."""
MOST = 512
"""The most findings in all."""
Alike = tuple[object, ...]


@dataclass(slots=True)
class _Group:
    """Findings that are alike, by identity, and how many milder ones were dropped, between which steps."""

    found: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    dropped: int = 0
    first: int | None = None
    last: int | None = None

    def drop_mildest(self) -> Finding:
        mildest = min(self.found.values(), key=_gravity)
        del self.found[mildest.identity]
        self.dropped += 1
        for step in (mildest.step, mildest.last):
            if step is not None:
                self.first = step if self.first is None else min(self.first, step)
                self.last = step if self.last is None else max(self.last, step)
        return mildest

    def findings(self) -> Iterator[Finding]:
        """Yield the findings; the text of the worst one says how many were dropped."""
        worst = max(self.found.values(), key=_gravity) if self.dropped else None
        for each in self.found.values():
            yield replace(each, symptoms=(*each.symptoms, self._in_words())) if each is worst else each

    def _in_words(self) -> str:
        where = "" if self.first is None else f", in steps {self.first} to {self.last}"
        return f"{self.dropped} milder one{'s' * (self.dropped != 1)} like it{where}"


class KeptFindings:
    """Findings by identity. A worse one is never dropped for a milder one that is like it."""

    def __init__(self) -> None:
        self._groups: dict[Alike, _Group] = {}
        self._count = self._unlisted = 0

    def __iter__(self) -> Iterator[Finding]:
        found = [each for group in self._groups.values() for each in group.findings()]
        if self._unlisted and found:
            words = f"{self._unlisted} milder finding{'s' * (self._unlisted != 1)} that are not listed"
            worst = max(range(len(found)), key=lambda at: _gravity(found[at]))
            found[worst] = replace(found[worst], symptoms=(*found[worst].symptoms, words))
        return iter(found)

    def __contains__(self, finding: Finding) -> bool:
        group = self._groups.get(_alike(finding))
        return group is not None and finding.identity in group.found

    def keep(self, finding: Finding) -> None:
        """Add a finding, or replace the one with its identity."""
        group = self._groups.setdefault(_alike(finding), _Group())
        self._count += finding.identity not in group.found
        group.found[finding.identity] = finding
        if len(group.found) > MAX_ALIKE:
            self._drop(group)
        if self._count > MOST:
            self._drop(min(self._groups.values(), key=_importance))

    def withdraw(self, finding: Finding) -> None:
        """Remove the finding with this identity."""
        group = self._groups.get(_alike(finding))
        if group is not None and group.found.pop(finding.identity, None) is not None:
            self._count -= 1
            self._forget_empty(group, finding)

    def _drop(self, group: _Group) -> None:
        mildest = group.drop_mildest()
        self._count -= 1
        self._forget_empty(group, mildest)

    def _forget_empty(self, group: _Group, last: Finding) -> None:
        if not group.found:
            self._unlisted += group.dropped
            del self._groups[_alike(last)]


def _alike(finding: Finding) -> Alike:
    return finding.kind, finding.key, finding.span, finding.ranks


def _gravity(finding: Finding) -> tuple[int, float]:
    return -SEVERITIES.index(finding.severity), finding.weight


def _importance(group: _Group) -> tuple[int, int, float]:
    """Return the order in which groups lose a finding: the mildest, then those with many, then the smallest."""
    severity, weight = max(map(_gravity, group.found.values()))
    return severity, -len(group.found), weight
