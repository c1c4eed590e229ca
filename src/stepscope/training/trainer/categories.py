"""Categories of an RL trainer's metrics: TRAINER, ACTOR, EVALUATOR, MISC, their aliases and prefixes."""

from enum import StrEnum
from typing import Any

from stepscope.model import names


class Category(StrEnum):
    """A category; its value is the prefix of its metrics' keys, without the slash."""

    TRAINER = "trainer"
    ACTOR = "actor"
    EVALUATOR = "evaluator"
    MISC = "misc"


_KNOWN = frozenset(Category)


def known(word: Any) -> Category | None:
    """The category a word means, in any case, or by its alias (TRAIN, ACT, EVAL); None for any other word."""
    if not isinstance(word, str):
        return None
    meant = names.CATEGORIES.get(word.strip().strip("/").lower())
    return Category(meant) if meant in _KNOWN else None


def normalize(word: Any) -> Category:
    """The category a word means; MISC for whatever nobody knows."""
    return known(word) or Category.MISC
