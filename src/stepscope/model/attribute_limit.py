"""Which attributes of a record are left out when it has too many."""

from collections.abc import Sequence

_DIGITS = "0123456789"


def left_out(keys: Sequence[str], most: int) -> list[str]:
    """Return the keys to leave out so that `most` are left: the oldest of those that end in a number, then others.

    Records with very many attributes have families of them, such as `loss_at_step_0`, `loss_at_step_1` and so on.
    What has a name of its own, such as `val_loss`, is kept before these, and what was set last before what was set
    first.
    """
    excess = len(keys) - most
    if excess <= 0:
        return []
    numbered = [key for key in keys if key.rstrip(_DIGITS) != key]
    others = [key for key in keys if key.rstrip(_DIGITS) == key]
    return (numbered + others)[:excess]
