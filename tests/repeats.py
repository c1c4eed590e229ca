"""How often tests repeat what chance decides: a few times, and many times with STEPSCOPE_TEST_LONG=1."""

import os

LONG = os.environ.get("STEPSCOPE_TEST_LONG", "0") not in ("", "0")


def repeats(usual: int, long: int) -> int:
    """Return how often to repeat."""
    return long if LONG else usual
