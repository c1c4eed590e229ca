"""Numbers, sizes, times, tables and sparklines for people."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.cli import text


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


def test_sparklines_mark_what_is_not_finite() -> None:
    """Low to high, with a mark for a NaN."""
    assert text.spark([0.0, 1.0, 2.0, math.nan]) == "▁▅█!"
    assert text.spark([]) == ""
    assert text.spark([5.0, 5.0]) == "▁▁"
    assert len(text.spark([float(n) for n in range(1000)], 10)) == 10
