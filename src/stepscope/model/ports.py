"""The interfaces between stages: writer, batch, sink."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from stepscope.model.records import Record
from stepscope.model.run_requests import Requests

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
        """The host as its resource names it, which users may set; `host` is the machine itself."""
        name = self.resource.get("host.name")
        return name if isinstance(name, str) and name else self.host


def run_id_problem(run: str) -> str:
    """Return what is wrong with a run id: empty, too long, or with control characters; empty when it is valid."""
    if not run:
        return "the run has no id"
    if len(run) > LONGEST_RUN_ID:
        return f"the run id is longer than {LONGEST_RUN_ID} characters"
    return "the run id has control characters" if _CONTROL.search(run) else ""


class Batch(NamedTuple):
    """Records of one writer, numbered; a `(writer.id, seq)` seen before may be ignored."""

    writer: Writer
    seq: int
    records: list[Record]
    request: int = 0
    """A hash of the request that brought it, for clients that do not number their batches; 0 for others."""

    @property
    def key(self) -> tuple[str, str, int]:
        """Identifies the batch: run, writer, sequence number."""
        return self.writer.run, self.writer.id, self.seq

    def part(self, start: int, stop: int) -> "Batch":
        """Return some of the records under their own sequence number, the same whenever the batch is split there.

        So a destination that ignores known sequence numbers stores each part of a batch once.
        """
        from hashlib import blake2b  # with OpenSSL, which takes longer to import than this module

        digest = blake2b(f"{self.seq}/{start}".encode(), digest_size=8).digest()
        number = 1 << 62 | int.from_bytes(digest) >> 3
        return self._replace(seq=number, records=self.records[start:stop], request=0)


Write = Callable[[Batch], None]
"""Take a batch. Returning means *safe*; the only refusals are `Retry` and `Reject`."""


class Sink(Protocol):
    """A destination that takes batches of several writers per call, because a request for each would be too many.

    A `Reject` counts its indices over the records of all batches, in order.
    """

    @property
    def timeout(self) -> float:
        """The longest time a `write` takes, in seconds."""

    @property
    def divisible(self) -> bool:
        """Whether a batch may be sent in parts; not where the destination identifies batches by sequence number."""

    def write(self, batches: Sequence[Batch]) -> Mapping[str, int]:
        """Take batches; returning means all are safe, except the returned counts of rejected records by reason.

        After `Retry` the same batches may be offered again, and accepted parts are not sent twice; a Retry after 0
        seconds means that it went well so far and is to be continued.
        """

    def close(self) -> None:
        """Close connections; a sink holds no records."""


@runtime_checkable
class AskingSink(Protocol):
    """A sink whose users may ask something of the programs it gets records of."""

    on_requests: Callable[[str, Requests], object]
    """Called with a run and what is asked of its program; must not raise."""
