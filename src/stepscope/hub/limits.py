"""How much one request, record, client or run may bring."""

from dataclasses import dataclass

MEGA = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a hub; what is beyond them is refused or cut, and counted."""

    body: int = 20 * MEGA
    """Bytes of an ingest request, before and after decompression."""
    small_body: int = MEGA
    """Bytes of any other request that says nothing else."""
    bodies: int = 256 * MEGA
    """Bytes of all request bodies that are held at once."""
    header_seconds: float = 10.0
    """From the first byte of a request, or from connecting, to the end of its headers."""
    body_seconds: float = 60.0
    """From the end of the headers to the end of the body."""
    write_seconds: float = 60.0
    """How long a client may take to read the next part of an answer."""
    idle_seconds: float = 75.0
    """How long a connection is kept between two requests."""
    connections: int = 1000
    """HTTP connections at once; at most two fifths of the open files that the system allows."""
    grpc_connections: int = 500
    """The same for gRPC, at most a fifth."""
    streams: int = 200
    """Live streams at once."""
    client_streams: int = 50
    """Live streams of one client: a token, or an address where no token is needed."""
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
