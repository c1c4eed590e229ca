"""A decoder with a fault deep inside, to see that the fuzzer finds faults."""

from collections.abc import Iterator


def check(data: bytes) -> None:
    """Fail for bytes that only someone who watches the branches comes across."""
    if data[:1] == b"\xf7" and data[1:2] == b"S" and len(data) > 2:
        raise IndexError("planted")


def seeds() -> Iterator[bytes]:
    """Nothing that fails."""
    yield b"\0\0\0"
