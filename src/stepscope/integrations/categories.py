"""Where values of a framework go: their category and name, told by how their keys begin."""

from collections.abc import Collection, Mapping
from typing import Any


class Categories:
    """Sorts values into categories by the prefix of their keys, which is then taken off.

    It stays on where it is one of `whole`, and where the short name is taken: a key that had no prefix comes first,
    then the one that had the name in an earlier call, then those of earlier prefixes. Their order in a call counts
    for nothing.
    """

    def __init__(self, prefixes: Mapping[str, str], otherwise: str = "trainer", whole: Collection[str] = ()) -> None:
        self._prefixes = prefixes
        self._otherwise = otherwise
        self._whole = whole
        self._ranks = {prefix: rank for rank, prefix in enumerate(("", *prefixes))}
        self._owners: dict[tuple[str, str], str] = {}
        """The key that has a name in a category."""

    def sort(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Sort the values of one call: names and values by category."""
        found = [(self._prefix(key), key, value) for key, value in ((str(key), value) for key, value in values.items())]
        found.sort(key=lambda each: (self._ranks[each[0]], each[1]))
        sorted_: dict[str, dict[str, Any]] = {}
        for prefix, key, value in found:
            category = self._prefixes.get(prefix, self._otherwise)
            sorted_.setdefault(category, {})[self._name(category, prefix, key)] = value
        return sorted_

    def _prefix(self, key: str) -> str:
        return next((each for each in self._prefixes if key.startswith(each) and len(key) > len(each)), "")

    def _name(self, category: str, prefix: str, key: str) -> str:
        short = key if prefix in self._whole else key.removeprefix(prefix)
        if short == key or self._owners.setdefault((category, short), key) != key:
            self._owners[category, key] = key
            return key
        return short
