"""Attribute values of every sort, read by the real library."""

from typing import Any

import pytest
from hypothesis import given
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValueList

from stepscope.wire.otlp.decode.protobuf_request import any_value, attributes
from stepscope.wire.otlp.protobuf_writing import Pairs, write_value
from tests.wire.otlp import strategies


@given(strategies.values)
def test_values_are_read_back(value: Any) -> None:
    """A value of any type and nesting can be read back."""
    found = any_value(AnyValue.FromString(write_value(value)))
    assert repr(found) == repr(value)


@given(strategies.attrs)
def test_pairs_are_read_back_twice(attrs: dict[str, Any]) -> None:
    """What is remembered from the first time is as good the second time."""
    pairs = Pairs(b"\x0a")
    for _ in range(2):
        assert repr(attributes(KeyValueList.FromString(pairs.write(attrs)).values)) == repr(attrs)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (2**63, str(2**63)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        ((1, 2), [1, 2]),
        ({1: {2: "x"}}, {"1": {"2": "x"}}),
        ("a\ud800", "a?"),
        (range(2), "range(0, 2)"),
        (True, True),
        (1, 1),
    ],
)
def test_what_otlp_has_no_kind_for_becomes_text(value: Any, read: Any) -> None:
    """Values without an OTLP type become strings, without an exception."""
    found = any_value(AnyValue.FromString(write_value(value)))
    assert found == read
    assert type(found) is type(read)


def test_true_and_one_are_not_confused() -> None:
    """Equal in Python, not on the wire, however often they alternate."""
    pairs = Pairs(b"\x0a")
    for value in (True, 1, 1.0, True, 1, 1.0):
        found = attributes(KeyValueList.FromString(pairs.write({"k": value})).values)["k"]
        assert type(found) is type(value)


def test_memory_is_bounded() -> None:
    """A key or value that never repeats does not stay."""
    pairs = Pairs(b"\x0a")
    for n in range(10_000):
        pairs.write({"k": f"value {n}", f"key {n}": n})
    assert len(pairs._texts) <= 4096
    assert len(pairs._heads) <= 4096


def test_some_keys_can_be_left_out() -> None:
    """Keys that are separate fields in OTLP can be left out."""
    written = Pairs(b"\x0a").write({"a": 1, "b": 2}, ("b",))
    assert attributes(KeyValueList.FromString(written).values) == {"a": 1}


def test_the_step_and_its_axis() -> None:
    """The step and its axis are two attributes, the second only for a named axis."""
    pairs = Pairs(b"\x0a")
    assert pairs.write_step(None, None) == b""
    assert attributes(KeyValueList.FromString(pairs.write_step(-5, None)).values) == {"train.step": -5}
    assert attributes(KeyValueList.FromString(pairs.write_step(2**40, "tokens")).values) == {
        "train.step": 2**40,
        "train.step.name": "tokens",
    }
