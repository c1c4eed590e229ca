"""Adversarial texts for a regular expression: repetitions of what it matches, cut short before it can."""

import random
import re
import time
import warnings
from collections.abc import Callable
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_constants as names
    import sre_parse

SUFFIXES = ("", " @", "!", "\n", ".password", '"]')
_CLASSES = {
    names.CATEGORY_DIGIT: "7",
    names.CATEGORY_NOT_DIGIT: "a",
    names.CATEGORY_SPACE: " ",
    names.CATEGORY_NOT_SPACE: "a:",
    names.CATEGORY_WORD: "aé_7",
    names.CATEGORY_NOT_WORD: " .",
}
_ANY = "a:/ '\"<=.@,-é7A\\"
_QUICK_SECONDS = 0.01
"""A text that takes less is searched fast enough; a slower one is measured at two lengths."""
_STEPS = 10**8
"""So many steps would a search take that begins anew at each repetition: the text is long enough for that."""
_MAX_OWN = 16
_RATIO = 8
"""Four times the text may take this many times as long; quadratic time is sixteen times."""


def pumps(pattern: "re.Pattern[Any]", rounds: int, seed: int = 1) -> list[tuple[str, str]]:
    """List beginnings and pieces to repeat after them: parts of texts that match, whole ones, and with more between."""
    chance = random.Random(seed)
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    parsed = list(sre_parse.parse(source, pattern.flags & ~re.DEBUG))
    found: set[tuple[str, str]] = set()
    for _ in range(rounds):
        pieces = [piece for piece in _sample(parsed, chance) if piece]
        whole = "".join(pieces)
        found |= {("", whole), ("", chance.choice(_ANY) + whole), ("", whole + chance.choice(_ANY))}
        for start in range(len(pieces)):
            begin = "".join(pieces[:start])
            found |= {("", begin), (begin, pieces[start]), (begin, "".join(pieces[start : start + 2]))}
    return sorted(pair for pair in found if 0 < len(pair[1]) <= 200)


def pairs(pattern: "re.Pattern[Any]") -> list[str]:
    """List all pairs of the characters that stand for themselves in a pattern, with a letter and a blank."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    written = dict.fromkeys(each for each in source if not each.isalnum())
    own = [*written, "a", " "] if len(written) <= _MAX_OWN else ["a", " ", *_ANY]
    return sorted({first + second for first in own for second in own})


def _sample(nodes: "list[Any]", chance: random.Random) -> list[str]:
    """A text for each node of a parsed pattern, which together usually match."""
    found: list[str] = []
    for kind, given in nodes:
        if kind is names.LITERAL:
            found.append(chr(given))
        elif kind is names.NOT_LITERAL:
            found.append("b" if given == ord("a") else "a")
        elif kind is names.ANY:
            found.append(chance.choice(_ANY))
        elif kind is names.IN:
            found.append(_of_class(given, chance))
        elif kind is names.CATEGORY:
            found.append(chance.choice(_CLASSES.get(given, "a")))
        elif kind in (names.MAX_REPEAT, names.MIN_REPEAT, getattr(names, "POSSESSIVE_REPEAT", None)):
            least, most, inner = given
            count = chance.choice((least, min(most, least + 1), min(int(most), least + 3)))
            found.append("".join("".join(_sample(list(inner), chance)) for _ in range(count)))
        elif kind is names.SUBPATTERN:
            found += _sample(list(given[-1]), chance)
        elif kind is getattr(names, "ATOMIC_GROUP", None):
            found += _sample(list(given), chance)
        elif kind is names.BRANCH:
            found += _sample(list(chance.choice(given[1])), chance)
        elif kind is names.ASSERT and given[0] < 0:
            found.append("".join(_sample(list(given[1]), chance)))
    return found


def _of_class(given: "list[Any]", chance: random.Random) -> str:
    if given[0][0] is names.NEGATE:
        allowed = [each for each in _ANY + "b" if not any(_holds(one, each) for one in given[1:])]
        return chance.choice(allowed or ["b"])
    kind, value = chance.choice(given)
    if kind is names.RANGE:
        return chr(chance.choice(value))
    return chr(value) if kind is names.LITERAL else chance.choice(_CLASSES.get(value, "a"))


def _holds(one: Any, text: str) -> bool:
    kind, value = one
    if kind is names.RANGE:
        return bool(value[0] <= ord(text) <= value[1])
    if kind is names.LITERAL:
        return bool(ord(text) == value)
    known = {names.CATEGORY_DIGIT: text.isdigit(), names.CATEGORY_SPACE: text.isspace()}
    return known.get(value, (text.isalnum() or text == "_") is (value is names.CATEGORY_WORD))


def is_linear(search: Callable[[str], object], prefix: str, piece: str, suffix: str) -> bool:
    """Return whether searching four times as many repetitions takes about four times the CPU time."""

    def text(length: int) -> str:
        return prefix + piece * (length // len(piece)) + suffix

    whole = int((2 * _STEPS * len(piece)) ** 0.5)
    size = whole // 4
    once = seconds(search, text(4 * size), tries=1)
    if once < _QUICK_SECONDS:
        return True
    most = max(_RATIO * seconds(search, text(size)), _QUICK_SECONDS)
    return once < most or seconds(search, text(4 * size)) < most  # most are linear at the first try


def seconds(search: Callable[[str], object], text: str, tries: int = 3) -> float:
    """The CPU time of a search, the least of some tries."""
    found = []
    for _ in range(tries):
        began = time.process_time()
        search(text)
        found.append(time.process_time() - began)
    return min(found)
