"""Which metric of a run a name means: its spellings, and for `loss` and `reward` what training code calls them."""

import re
from collections.abc import Iterable

from stepscope.model import names

MOST = 60
_NOT_TRAINING = re.compile(r"(^|[/._-])(eval|evaluator|val|valid|validation|test|best|min|max|std|grad)([/._-]|$)")
_MEANINGS: dict[str, tuple[re.Pattern[str], ...]] = {
    "loss": (
        re.compile(r"(^|[/._-])loss([/._-](train(ing)?|total|mean))?$"),
        re.compile(r"(^|[/._-])(train(ing)?|total|mean|avg|running|batch|step|lm|ce)[/._-]?loss([/._-](step|epoch))?$"),
        re.compile(r"(^|[/._-])(policy|actor|pg|policy_gradient|value|critic)[/._-]?loss$"),
        re.compile(r"loss"),
    ),
    "reward": (
        re.compile(r"(^|[/._-])(reward|return)s?$"),
        re.compile(r"(reward|return)s?[/._-]?mean|mean[/._-]?(episode[/._-]?)?(reward|return)"),
        re.compile(r"(ep(isode|isodic)?[/._-]?(rew(ard)?|return))"),
        re.compile(r"reward|return"),
    ),
}
"""What a word means beyond its spellings, the likeliest first."""
MEANINGS = tuple(_MEANINGS)


def meant_by(name: str, known: Iterable[str]) -> list[str]:
    """The keys that a name may mean, the likeliest first; `known` are all keys there are."""
    found = names.spellings(name)
    for pattern in _MEANINGS.get(name, ()):
        matching = sorted(key for key in known if _is_of_training(key) and pattern.search(key.lower()))
        found += matching
    return list(dict.fromkeys(found))[:MOST]


def _is_of_training(key: str) -> bool:
    return not key.startswith(("system/", "stepscope/")) and _NOT_TRAINING.search(key.lower()) is None
