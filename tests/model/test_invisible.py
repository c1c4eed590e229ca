"""Invisible characters are escaped, here and on the page; `invisible.json` has the cases of both."""

import json
import sys
import unicodedata
from pathlib import Path

import pytest

from stepscope.model.invisible import escape_invisible

CASES = json.loads(Path(__file__).with_name("invisible.json").read_text())


@pytest.mark.parametrize(("given", "shown"), CASES)
def test_what_cannot_be_seen_is_escaped(given: str, shown: str) -> None:
    """Orders of writing, joiners without a meaning, spaces of no width; emojis, scripts and what is escaped stay."""
    assert escape_invisible(given) == shown
    assert escape_invisible(shown) == shown


def test_every_format_character_between_letters_is_escaped() -> None:
    """None of Unicode's own list is forgotten, but for those that are drawn."""
    drawn = {0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    drawn |= set(range(0x13430, 0x13460))
    every = [each for each in range(sys.maxunicode) if unicodedata.category(chr(each)) == "Cf" and each not in drawn]
    assert [hex(each) for each in every if escape_invisible(f"a{chr(each)}b") == f"a{chr(each)}b"] == []
