"""Decompression that stops at its limit."""

import gzip
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from stepscope.hub.receivers.bodies import ENCODINGS, LARGE, Broken, TooLarge, inflate, parse
from stepscope.hub.threads import Workers

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


def test_large_bodies_are_parsed_one_at_a_time() -> None:
    """While one large body is being parsed, another waits, and a small one does not."""
    workers, begun, go_on = Workers("test", threads=1, waiting=0), threading.Semaphore(0), threading.Event()

    def work(data: bytes) -> int:
        if len(data) > LARGE:
            begun.release()
            assert go_on.wait(300)
        return len(data)

    with ThreadPoolExecutor(2) as pool:
        large = [pool.submit(parse, workers, bytes(LARGE + 1), work) for _ in range(2)]
        assert begun.acquire(timeout=300)
        assert parse(workers, b"small", work) == 5
        assert workers.large.locked()
        assert not begun.acquire(blocking=False)
        go_on.set()
        assert [each.result(60) for each in large] == [LARGE + 1] * 2
    assert begun.acquire(blocking=False)
    workers.close()
