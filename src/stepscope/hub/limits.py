"""Limits on the size of requests, records, clients and runs."""

from dataclasses import dataclass

MEGA = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a hub; what exceeds them is rejected or truncated, and counted."""

    body: int = 20 * MEGA
    """Bytes of an ingest request, before and after decompression."""
    small_body: int = MEGA
    """Bytes of any other request without its own limit."""
    stream_body: int = 20 * 1024 * MEGA
    """Bytes of a request that is not kept in memory: an uploaded file, or what a proxy passes on."""
    bodies: int = 256 * MEGA
    """Bytes of all request bodies in memory."""
    header_seconds: float = 10.0
    """Seconds from the first byte of a request, or from connecting, to the end of its headers."""
    body_seconds: float = 60.0
    """Seconds from the end of the headers to the end of the body."""
    write_seconds: float = 60.0
    """Seconds a client may take to read the next part of a response."""
    idle_seconds: float = 75.0
    """Seconds a connection is kept between two requests."""
    connections: int = 1000
    """Concurrent HTTP connections; at most two fifths of the open files that the system allows."""
    grpc_connections: int = 500
    """The same for gRPC, at most a fifth."""
    streams: int = 200
    """Concurrent live streams."""
    client_streams: int = 50
    """Live streams of one client: a token, or an address where no token is needed."""
    attributes: int = 256
    """Attributes of one record; further ones are dropped."""
    text: int = 64 * 1024
    """Characters of one attribute; the rest is cut."""
    name: int = 500
    """Characters of a metric's key, its category and its axis; a longer one is cut and ends with a hash of it all.

    Keys are asked for by name, many in one address.
    """
    depth: int = 64
    """Nesting of lists and dicts; deeper ones are dropped."""
    long_text: int = MEGA
    """Characters of a log's or event's body."""
    keys: int = 20_000
    """Distinct metric keys of one run from a client other than our SDK."""
    series: int = 50_000
    """Distinct combinations of a key and its attributes of one run, likewise."""
    runs: int = 50_000
    """New runs of one receiver in a day."""
    all_runs: int = 200_000
    """Runs in the store; new ones that would be more are refused."""
    requests: float = 1000.0
    """Requests per second with one token, unless the token has its own rate."""
