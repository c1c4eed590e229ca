"""Decompression that stops at its limit."""

import gzip
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from stepscope.hub.receivers.bodies import ENCODINGS, Broken, TooLarge, inflate

DATA = b"some text " * 100
PACK = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_limit(encoding: str) -> None:
    """Exactly as much as the limit passes, one byte more does not."""
    packed = PACK[encoding](DATA)
    assert inflate(packed, encoding, len(DATA)) == DATA
    with pytest.raises(TooLarge):
        inflate(packed, encoding, len(DATA) - 1)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_members(encoding: str) -> None:
    """Several compressed parts one after another are one body."""
    assert inflate(PACK[encoding](b"ab") + PACK[encoding](b"cd"), encoding, 10) == b"abcd"
    with pytest.raises(TooLarge):
        inflate(PACK[encoding](b"ab") * 6, encoding, 10)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_cut_off(encoding: str) -> None:
    """A body that is cut off anywhere is broken."""
    packed = PACK[encoding](DATA)
    for end in range(1, len(packed)):
        with pytest.raises(Broken):
            inflate(packed[:end], encoding, 10_000)


@given(st.binary(max_size=300), st.sampled_from(ENCODINGS))
def test_any_bytes(data: bytes, encoding: str) -> None:
    """No bytes make it raise anything else, or return more than the limit."""
    try:
        assert len(inflate(data, encoding, 1000)) <= 1000
    except (Broken, TooLarge):
        pass
