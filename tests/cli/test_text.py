"""Numbers, sizes, times, tables and sparklines for people."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.cli import text
from stepscope.cli.text import columns_of


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (3, "3"), (0.000123456, "1.235e-4"), (7.68e10, "7.68e10"),
        (math.nan, "!NaN"), (math.inf, "!Inf"), (-math.inf, "!-Inf"), ("-Infinity", "!-Inf"),
        (True, "1"), (False, "0"),
    ],
)  # fmt: skip
def test_numbers(value: float | str | None, shown: str) -> None:
    """A number that is not finite is marked, also as the word that JSON has for it; a bool is the number it equals."""
    assert text.number(value) == shown


def test_values_of_byte_keys_are_sizes() -> None:
    """A key that names its unit is shown in it."""
    assert text.value_of("memory/used_bytes", 2_000_000) == "2 MB"
    assert text.value_of("network/sent_bytes_per_second", 1500.0) == "1.5 kB/s"
    assert text.value_of("loss", 0.5) == "0.5"
    assert text.value_of("memory/used_bytes", math.nan) == "!NaN"
    assert text.value_of("memory/used_bytes", "NaN") == "!NaN"


def test_times_for_programs_are_utc() -> None:
    """ISO 8601 to the microsecond."""
    assert text.iso(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123456Z"
    assert text.iso(None) is None


@given(st.text())
def test_no_text_of_a_run_reaches_the_terminal_as_a_command(given: str) -> None:
    """A log line can neither break a line nor send an escape sequence."""
    shown = text.clean(given)
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    assert len(shown.splitlines()) <= 1


def test_tables_align_and_cut() -> None:
    """Columns line up, long cells end in an ellipsis."""
    lines = text.table(("NAME", ">N"), [["a", "1"], ["much too long", "100"]], limits={"NAME": 6})
    assert lines == ["NAME      N", "a         1", "much …  100"]


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ("loss", 4), ("損失", 4), ("ü", 1), ("u\u0308", 1), ("🚀", 2), ("👩\u200d🔬", 2), ("👍🏽", 2), ("❤\ufe0f", 2),
        ("❤", 1), ("🇯🇵", 2), ("1\ufe0f\u20e3", 2), ("한글", 4), ("ﾊﾝｶｸ", 4), ("–…×▁⣿", 5), ("می\u200cخواهم", 7),
    ],
)  # fmt: skip
def test_wide_characters_take_two_columns(given: str, columns: int) -> None:
    """As a terminal draws them: Chinese, Japanese and Korean, emojis of several characters, marks on others."""
    assert columns_of(given) == columns


def test_tables_of_wide_characters_align() -> None:
    """The next column begins at the same place in each line; what is cut fits, and no emoji is cut in two."""
    rows = [["損失の実験", "1"], ["🚀👩\u200d🔬🚀🚀", "2"], ["plain", "3"]]
    lines = text.table(("NAME", "N"), rows, limits={"NAME": 6})
    assert lines == ["NAME   N", "損失…  1", "🚀👩\u200d🔬…  2", "plain  3"]
    assert {columns_of(line) for line in lines} == {8}
    assert text.fill("損失", 6) == "損失  "


@given(st.text(), st.integers(0, 30))
def test_what_is_cut_fits(given: str, columns: int) -> None:
    """No text is wider than it may be."""
    assert columns_of(text.cut(text.clean(given), columns)) <= max(columns, 1)


def test_what_cannot_be_seen_is_escaped() -> None:
    """A name that is written backwards, or has spaces of no width, does not look like another."""
    assert text.clean("loss\u202egnp.exe") == "loss\\u202egnp.exe"
    assert text.table(("NAME",), [["lo\u200bss"]])[1] == "lo\\u200bss"


def test_sparklines_mark_what_is_not_finite() -> None:
    """Low to high, with a mark for a NaN."""
    assert text.spark([0.0, 1.0, 2.0, math.nan]) == "▁▅█!"
    assert text.spark([]) == ""
    assert text.spark([5.0, 5.0]) == "▁▁"
    assert len(text.spark([float(n) for n in range(1000)], 10)) == 10
