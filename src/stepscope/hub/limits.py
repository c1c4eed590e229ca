"""How much one request, record or run may bring."""

from dataclasses import dataclass

MEGA = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a hub; what is beyond them is refused or cut, and counted."""

    body: int = 20 * MEGA
    """Bytes of a request, before and after decompression; empty attributes take 27 times as much when parsed."""
    attributes: int = 256
    """Attributes of one record; the others go."""
    text: int = 64 * 1024
    """Characters of one attribute; the rest goes."""
    depth: int = 64
    """Lists and dicts inside one another; what lies deeper goes."""
    long_text: int = MEGA
    """Characters of a log's or event's body."""
    keys: int = 20_000
    """Different metric keys of one run from a client that is not ours."""
    requests: float = 1000.0
    """Requests per second with one token, unless the token says otherwise."""
