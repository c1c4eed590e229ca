"""Which attributes of a record are left out when it has too many."""

from collections import Counter
from collections.abc import Sequence

_DIGITS = "0123456789"
_ENDS = frozenset(_DIGITS)
_WITHOUT_DIGITS = str.maketrans("", "", _DIGITS)


def left_out(keys: Sequence[str], most: int) -> list[str]:
    """Return the keys to leave out so that `most` are left: the oldest of those that are numbered, then others.

    Records with very many attributes have families of them, such as `loss_at_step_0`, `loss_at_step_1` and so on, or
    `layer.0.norm` and `layer.1.norm`: a key is numbered that ends in a number, or differs from another in one. What
    has a name of its own, such as `val_loss`, is kept before these, and what was set last before what was set first.
    """
    excess = len(keys) - most
    if excess <= 0:
        return []
    families = Counter(map(_family, keys))
    numbered = {key for key in keys if key[-1:] in _ENDS or (_family(key) != key and families[_family(key)] > 1)}
    return [*(key for key in keys if key in numbered), *(key for key in keys if key not in numbered)][:excess]


def _family(key: str) -> str:
    return key.translate(_WITHOUT_DIGITS)
