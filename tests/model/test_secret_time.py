"""The time that masking takes is linear in the length of the text, whatever the text."""

import random
import re

import pytest

from stepscope.model import redaction
from tests.pattern_pumps import SUFFIXES, is_linear, pumps

PATTERNS = {
    name: pattern
    for name, pattern in vars(redaction).items()
    if isinstance(pattern, (re.Pattern, redaction._Expression))
}
KNOWN = [
    ("://", "a:", " @"),
    ("", "password=[ ", ".password"),
    ("", "password=a(", ""),
    ("", "pass=a=", ""),
    ("", "cookie=a(", ""),
    ("", "-a.", ""),
    ("", "7777%", ""),
    ("-%", ",b=:", ""),
    ("", "%253Dpassword", ""),
    ("", "password: |\n ", ""),
    ("", "password:\n ", ""),
    ("", "('password', '", ""),
    ("", "key=token value=", ""),
    ("", "<a name='token' ", ""),
    ("", "<token>a(", "</"),
    ("", "SecretStr('", ""),
    ("", "?key=", ""),
    ("", "mysql a ", " -p"),
    ("", " -p", ""),
]


def test_all_patterns_are_tried() -> None:
    """Those that are compiled at their first use, too."""
    assert {"_LOGIN", "_KEYS", "_GIVEN", "_ENCODED", "_WORD"} <= set(PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
def test_no_repetition_of_what_a_pattern_matches_is_slow(name: str) -> None:
    """Texts are made from each pattern: four times the text takes about four times the CPU time."""
    chance = random.Random(name)
    found = pumps(PATTERNS[name], rounds=3)
    for begin, piece in chance.sample(found, min(len(found), 16)):
        suffix = chance.choice(SUFFIXES)
        assert is_linear(redaction.mask_text, begin, piece, suffix), (begin, piece, suffix)


@pytest.mark.parametrize(("begin", "piece", "suffix"), KNOWN)
def test_a_text_that_was_slow_is_not(begin: str, piece: str, suffix: str) -> None:
    """Values that contain each other, open brackets, logins and encodings are each read once."""
    assert is_linear(redaction.mask_text, begin, piece, suffix)
