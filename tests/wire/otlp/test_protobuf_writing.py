"""The wire format by hand, against the real protobuf library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from stepscope.wire.otlp.protobuf_writing import delimited, scan, text, varint, zigzag


@given(st.integers(0, 2**64 - 1))
def test_a_varint_is_read_back(number: int) -> None:
    """Any unsigned 64-bit integer survives."""
    assert list(scan(b"\x08" + varint(number))) == [(1, number)]


@given(st.integers(-(2**31), 2**31 - 1))
def test_zigzag_is_protobufs(number: int) -> None:
    """The library reads the same signed integer."""
    assert ExponentialHistogramDataPoint.FromString(b"\x30" + zigzag(number)).scale == number


@given(st.text())
def test_text_is_protobufs(value: str) -> None:
    """The library reads the same string."""
    assert Status.FromString(text(b"\x12", value)).message == value


def test_what_utf8_cannot_say_does_not_break_the_message() -> None:
    """A lone surrogate becomes a question mark, for a server would refuse the whole request."""
    assert Status.FromString(text(b"\x12", "a\ud800b")).message == "a?b"


def test_all_wire_types_are_scanned() -> None:
    """Varint, 64-bit, length-delimited and 32-bit fields."""
    data = b"\x08\x96\x01" + b"\x11" + bytes(8) + delimited(b"\x1a", b"abc") + b"\x25\x01\x00\x00\x00"
    assert list(scan(data)) == [(1, 150), (2, 0), (3, b"abc"), (4, 1)]


@pytest.mark.parametrize("data", [b"\x08", b"\x08\xff", b"\x0a\x05ab", b"\x09abc", b"\x0b", b"\x08" + b"\xff" * 11])
def test_what_is_cut_off_is_no_message(data: bytes) -> None:
    """A truncated message raises only ValueError."""
    with pytest.raises(ValueError, match=r"cut off|too long|wire type"):
        list(scan(data))


@given(st.binary(max_size=100))
def test_any_bytes_scan_or_raise_value_error(data: bytes) -> None:
    """Arbitrary bytes raise nothing else."""
    try:
        list(scan(data))
    except ValueError:
        pass
