"""What inputs cost: a piece that is repeated thousands of times takes time in proportion to its bytes."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.target import NAMES, Target, load
from tests.fuzz.test_fuzz import seeds_of

LONGEST = 60_000
SECONDS, SECONDS_PER_BYTE = 2.0, 150e-6
"""CPU time that an input may take: a resource of two bytes takes about 50 us, from its bytes to the store's rows."""
few = settings(max_examples=25, suppress_health_check=list(HealthCheck))


def cost(target: Target, data: bytes) -> float:
    """Seconds of CPU that an input takes, of this thread alone, so that a busy machine changes little."""
    began = time.thread_time()
    target.check(data)
    return time.thread_time() - began


@st.composite
def repeated(draw: st.DrawFn, target: Target) -> bytes:
    """A piece of a seed, or of anything, as often as it fits, between the two ends of a seed."""
    seed = draw(st.sampled_from(seeds_of(target)))
    start = draw(st.integers(0, len(seed)))
    end = draw(st.integers(start, min(len(seed), start + 40)))
    piece = seed[start:end] or draw(st.binary(min_size=1, max_size=6))
    head, tail = seed[: start or 1][:4000], seed[end:][:4000]
    return head + piece * ((LONGEST - len(head) - len(tail)) // len(piece)) + tail


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.timeout(300)
def test_repeated_pieces(name: str) -> None:
    """No piece makes a decoder take more time than its size allows."""
    target = load(name)

    @few
    @given(repeated(target))
    def check(data: bytes) -> None:
        spent = cost(target, data)
        assert spent < SECONDS + SECONDS_PER_BYTE * len(data), f"{spent:.1f} s for {len(data)} bytes"

    check()


@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("otlp_protobuf", b"\n\0"),
        ("otlp_json", b"{},"),
        ("otlp_json", b"["),
        ("inflate", bytes.fromhex("1f8b08000000000000ff030000000000000000 00".replace(" ", ""))),
        ("inflate", b"\0"),
        ("dashboard", b"["),
        ("dashboard", b"- "),
        ("dashboard", b"? "),
        ("dashboard", b"a: &b\n"),
        ("statement", b"("),
        ("statement", b"SELECT "),
        ("statement", b"'"),
        ("run_filter", b"("),
        ("run_filter", b"not "),
        ("run_filter", b"a and "),
        ("run_filter", b"-"),
        ("native_frames", b"\x91"),
        ("native_frames", b"\0\0"),
    ],
)
@pytest.mark.parametrize("head", [b"", b"\0", b"\1", b"\2", b'\2{"resourceLogs":['])
def test_known_pieces(name: str, piece: bytes, head: bytes) -> None:
    """Pieces that were costly, or might be."""
    target = load(name)
    data = head + piece * (LONGEST // len(piece))
    assert cost(target, data) < SECONDS + SECONDS_PER_BYTE * len(data)
