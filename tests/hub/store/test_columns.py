"""Columns survive the way to the engine's format and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.hub.store import columns

INT64 = st.integers(-(2**63), 2**63 - 1)
ROWS = st.lists(
    st.tuples(INT64, st.floats(), st.text(st.characters(exclude_categories=("Cs",))), st.binary(min_size=4, max_size=4))
)


@given(ROWS, st.lists(st.text(max_size=200)))
def test_blocks_come_back(rows: list[tuple[int, float, str, bytes]], words: list[str]) -> None:
    """Numbers bit by bit, texts of any length, ids, and arrays of texts."""
    lengths = [len(words) // (len(rows) or 1)] * len(rows)
    flat = [word for word in words if word.isprintable()][: sum(lengths)]
    lengths = [len(flat) // (len(rows) or 1)] * len(rows)
    flat = flat[: sum(lengths)]
    block = {
        "i": columns.numbers("Int64", [row[0] for row in rows]),
        "f": columns.numbers("Float64", [row[1] for row in rows]),
        "s": columns.texts([row[2] for row in rows]),
        "x": columns.fixed(4, [row[3] for row in rows]),
        "a": columns.Lists(columns.ends_of(lengths), columns.texts(flat)),
    }
    data = columns.encode(block)
    answer = columns.decode(data + data)
    assert answer["i"] == [row[0] for row in rows] * 2
    assert answer.array("f").tobytes() == np.array([row[1] for row in rows] * 2).tobytes()
    assert answer["s"] == [row[2] for row in rows] * 2
    assert answer["x"] == [row[3] for row in rows] * 2
    assert [word for words in answer["a"] for word in words] == flat * 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: columns.numbers("UInt16", [70_000]),
        lambda: columns.numbers("UInt32", [-1]),
        lambda: columns.numbers("Int64", ["1"]),
        lambda: columns.numbers("Float64", [None]),
        lambda: columns.fixed(8, [b"short", b"12345678901"]),
        lambda: columns.texts(["lone \ud800"]),
        lambda: columns.texts([1]),
    ],
)
def test_what_does_not_fit_raises(make: object) -> None:
    """A column never holds another value than the one given."""
    with pytest.raises((OverflowError, TypeError, ValueError)):
        make()  # type: ignore[operator]


def test_an_unknown_type_is_named() -> None:
    """An answer that can not be read says why."""
    with pytest.raises(ValueError, match="Nullable"):
        columns.decode(b"\x01\x01\x01x\x10Nullable(String)\x00\x00")
