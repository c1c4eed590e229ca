"""What a value given to `log` is worth."""

import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.sdk import values


def flatten(metrics: dict[Any, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Flatten and collect the refusals."""
    refused: dict[str, str] = {}
    flat, held, media = values.flatten(metrics, lambda key, reason: refused.__setitem__(key, reason))
    assert held == media == []
    return flat, refused


def same(left: float, right: float) -> bool:
    """Equal, with NaN equal to itself and the sign of zero compared."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right and math.copysign(1, left) == math.copysign(1, right)


@given(st.floats())
def test_floats_are_kept_exactly(number: float) -> None:
    """Every float, NaN and infinities too, comes out as it went in, from Python and from numpy."""
    flat, refused = flatten({"a": number, "b": np.float64(number), "c": np.array(number)})
    assert not refused
    assert all(same(flat[key], number) for key in "abc")


@given(st.floats(width=32), st.floats(width=16))
def test_narrow_floats_are_kept_exactly(single: float, half: float) -> None:
    """Narrow floats are widened without a change."""
    flat, _ = flatten({"s": np.float32(single), "h": np.float16(half)})
    assert same(flat["s"], single)
    assert same(flat["h"], half)


@given(st.integers())
def test_integers_are_exact_within_64_bits(number: int) -> None:
    """A 64-bit integer stays exact; a larger one becomes the nearest float or is refused."""
    flat, refused = flatten({"n": number})
    if -(2**63) <= number < 2**64:
        assert flat == {"n": number}
        assert type(flat["n"]) is int
    elif refused:
        assert refused == {"n": "too large"}
    else:
        assert flat["n"] == float(number)


@pytest.mark.parametrize("number", [True, np.bool_(True), Fraction(1), Decimal(1), np.int8(1), np.uint64(1)])
def test_every_kind_of_one_is_one(number: Any) -> None:
    """Bools, fractions, decimals and numpy's integers are numbers."""
    assert flatten({"n": number}) == ({"n": 1}, {})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x", "string"),
        (b"x", "string"),
        (None, "none"),
        ([1.0], "vector"),
        (np.zeros(3), "vector"),
        (1j, "complex"),
        (np.complex128(1), "complex"),
        (np.str_("x"), "string"),
        (object(), "type object"),
        (10**400, "too large"),
    ],
)
def test_what_is_no_number_is_refused_alone(value: Any, reason: str) -> None:
    """A wrong value is refused with its reason and the others stay."""
    flat, refused = flatten({"good": 1.5, "bad": value})
    assert flat == {"good": 1.5}
    assert refused == {"bad": reason}


def test_an_empty_key_is_refused_alone() -> None:
    """A value without a name has no chart; one below it has."""
    assert flatten({"": 1.0, "good": 2.0, "sub": {"": 3.0}}) == ({"good": 2.0, "sub/": 3.0}, {"": "empty key"})


def test_nested_dicts_flatten() -> None:
    """Keys of nested dicts are joined with a slash; keys need not be texts."""
    assert flatten({"a": {"b": {"c": 1}}, 7: 2, ("x",): 3})[0] == {"a/b/c": 1, "7": 2, "('x',)": 3}


def test_endless_nesting_ends() -> None:
    """A recursive dict is rejected."""
    loop: dict[str, Any] = {"n": 1}
    loop["self"] = loop
    flat, refused = flatten(loop)
    assert flat["n"] == 1
    assert set(refused.values()) == {"too deep"}


def test_a_value_that_raises_is_refused() -> None:
    """A value whose conversion fails costs only itself."""

    class Broken:
        def __float__(self) -> float:
            raise RuntimeError("no")

    assert flatten({"a": 1, "b": Broken()}) == ({"a": 1}, {"b": "unreadable RuntimeError"})


def test_unpaired_surrogates_in_keys_are_replaced() -> None:
    """A key that is no valid text is still written."""
    flat, _ = flatten({"a\udc80": 1})
    assert list(flat) == ["a?"]


def test_no_library_is_imported_to_look_at_a_value() -> None:
    """Looking at values imports neither numpy nor torch nor jax nor tensorflow."""
    code = (
        "import sys; from stepscope.sdk import values; values.flatten({'a': object()}, print);"
        "print(sorted({'numpy', 'torch', 'jax', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
