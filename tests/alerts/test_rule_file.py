"""Rule files: what a text may cost, and what is read once."""

import pytest

from stepscope.alerts import rule_file
from stepscope.alerts.rule_file import LONGEST, MAX_RULES, Mistake, parse, with_packs
from stepscope.wire.yaml_text import MAX_NODES


@pytest.mark.parametrize("piece", ["a,", "{a: 1},", "[],"])
def test_a_text_of_many_parts_is_refused_where_there_are_too_many(piece: str) -> None:
    """A text of half a megabyte whose parts are tiny is read up to the limit, and no further."""
    text = "rules: [\n" + (piece * 10 + "\n") * ((LONGEST - 100) // (10 * len(piece) + 1)) + "]"
    with pytest.raises(Mistake, match=f"more than {MAX_NODES}") as refused:
        parse(text)
    assert refused.value.line <= MAX_NODES // 10 + 2


def test_the_most_rules_are_read_once() -> None:
    """As many rules as are allowed are within the limit; checking and loading the same text reads it once."""
    text = "rules:\n" + "".join(f"- {{name: r{i}, key: a{i}, when: '> 1'}}\n" for i in range(MAX_RULES))
    assert len(parse(text).rules) == MAX_RULES
    read = rule_file._read.cache_info().misses
    assert len(parse(text, "page").rules) == MAX_RULES
    assert len(with_packs([("page", text)]).rules) > MAX_RULES
    assert rule_file._read.cache_info().misses == read
