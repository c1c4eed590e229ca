"""Who writes: the identity of one process in one attempt of a run."""

import re
from typing import Any

from msgspec import Struct

SCHEMA = 1
LONGEST_RUN_ID = 4096
"""Characters; a longer id fits in no path or address."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


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

    @property
    def named_host(self) -> str:
        """The host as its resource names it, which a person may have set; `host` tells the machine itself."""
        said = self.resource.get("host.name")
        return said if isinstance(said, str) and said else self.host


def run_id_trouble(run: str) -> str:
    """Say what is wrong with a run id: it is empty, too long, or has control characters; empty when nothing is."""
    if not run:
        return "the run has no id"
    if len(run) > LONGEST_RUN_ID:
        return f"the run id is longer than {LONGEST_RUN_ID} characters"
    return "the run id has control characters" if _CONTROL.search(run) else ""
