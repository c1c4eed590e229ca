"""Who writes: the identity of one process in one attempt of a run."""

from typing import Any

from msgspec import Struct

SCHEMA = 1


class Writer(Struct, frozen=True, kw_only=True):
    """One process of a run; the first frame of each of its segments."""

    id: str
    run: str
    project: str
    name: str | None = None
    attempt: int = 1
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    host: str = ""
    pid: int = 0
    main: bool = True
    """False for a process forked from a run: it writes, but does not decide how the run ended."""
    wall_ns: int = 0
    monotonic_ns: int = 0
    resource: dict[str, Any] = {}
    schema: int = SCHEMA
