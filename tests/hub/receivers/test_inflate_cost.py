"""What decompression costs: in proportion to the bytes, whatever they are."""

import gzip
import time
import zlib

import pytest
import zstandard

from stepscope.hub.receivers.bodies import MEMBERS, Broken, TooLarge, inflate

MEGA = 1024 * 1024
EMPTY = {"gzip": gzip.compress(b""), "zstd": zstandard.compress(b"")}


@pytest.mark.parametrize("encoding", EMPTY)
def test_empty_members_are_bounded(encoding: str) -> None:
    """A body of nothing but empty members is refused after as many as may be, however long it is."""
    assert inflate(EMPTY[encoding] * MEMBERS, encoding, MEGA) == b""
    began = time.thread_time()
    with pytest.raises(Broken, match="parts"):
        inflate(EMPTY[encoding] * MEGA, encoding, MEGA)
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("zeros", [1, 1000, 20 * MEGA])
def test_padding_between_members(zeros: int) -> None:
    """Zeros behind a member are skipped, however many."""
    data = gzip.compress(b"a") + bytes(zeros) + gzip.compress(b"b")
    assert inflate(data, "gzip", 10) == b"ab"


def test_members_in_turn_with_padding_cost_no_more_than_their_bytes() -> None:
    """Twice the bytes take about twice the time, not four times."""

    def cost(members: int) -> float:
        data = (gzip.compress(b"") + b"\0") * members + bytes(8 * MEGA)
        began = time.thread_time()
        inflate(data, "gzip", MEGA)
        return time.thread_time() - began

    cost(100)
    assert min(cost(8000) for _ in range(3)) < 6 * max(cost(4000) for _ in range(3)) + 0.5


@pytest.mark.parametrize("window", [10, 20, 27, 31])
def test_zstd_windows(window: int) -> None:
    """A frame that asks for a window beyond the limit is refused; no frame takes memory before it has the bytes."""
    parameters = zstandard.ZstdCompressionParameters(window_log=min(window, 30), compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = packer.compress(b"a" * 1000) + packer.flush()
    try:
        assert inflate(data, "zstd", MEGA) == b"a" * 1000
        assert window <= 26
    except Broken:
        assert window > 26


def test_bombs() -> None:
    """A kilobyte that expands to a gigabyte is refused as soon as it exceeds the limit."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join([*(packer.compress(bytes(MEGA)) for _ in range(200)), packer.flush()])
    with pytest.raises(TooLarge):
        inflate(data, "gzip", MEGA)
    with pytest.raises(TooLarge):
        inflate(zstandard.compress(bytes(200 * MEGA)), "zstd", MEGA)
