"""The receiver interface (routes, authentication, error responses), and the list of receivers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from stepscope.hub.intake.intake_journal import StoreProgress
from stepscope.hub.intake.read_back import ReadBack
from stepscope.hub.limits import Limits
from stepscope.hub.receivers.ingest import Ingest, RunLinks
from stepscope.hub.refusals import Refusal
from stepscope.hub.runs.bucket import RemoteBlobs
from stepscope.hub.runs.deletion import RunDeletion
from stepscope.hub.runs.run_files import RunFiles
from stepscope.hub.runs.run_states import RunStates
from stepscope.hub.security.guard import RequestHead
from stepscope.hub.security.tokens import Scope
from stepscope.hub.store.engine import Engine
from stepscope.hub.threads import Workers
from stepscope.journal.run_edits import Edits
from stepscope.model.dialects import Plugins

RECEIVERS = Plugins("receiver", "stepscope.receivers", {"native": "stepscope.hub.receivers.native:Native"})
"""Our own receiver; those of foreign systems are parts of dialects."""


@dataclass(frozen=True, slots=True)
class ReceiverRoute:
    """One path of a receiver, with parameters in braces: `{name}`, or `{name:path}` for one with slashes."""

    path: str
    answer: Callable[[Request], Awaitable[Response]]
    """Handles a request whose token was checked; Refused becomes a response by the receiver's `refuse`."""
    methods: tuple[str, ...] = ("POST",)
    scope: Scope | tuple[Scope, ...] | None = "ingest"
    """The scope that a token needs, or several of which one is enough; None for a route without authentication."""
    body: int | None = None
    """The limit of a body in bytes, before and after decompression; None for the hub's limit of an ingest request."""
    stream: bool = False
    """Whether bodies are streamed: up to the hub's number of streams, and each part within its timeout."""

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of its path: exact paths are matched first, then more specific patterns."""
        kind = 2 if ":path}" in self.path else 1 if "{" in self.path else 0
        return kind, -len(self.path.partition("{")[0])


class Receiver(Protocol):
    """Receives one dialect over HTTP and converts it to batches. Every receiver passes `ReceiverContract`."""

    @property
    def name(self) -> str:
        """The name of its counters in health and metrics."""

    @property
    def prefixes(self) -> Sequence[str]:
        """Path prefixes under which it answers requests without a route with an error."""

    def routes(self) -> Sequence[ReceiverRoute]:
        """Return its routes."""

    def credential(self, head: RequestHead) -> str:
        """Return the token of a request, from the header or parameter of the dialect; empty without one."""

    def refuse(self, head: RequestHead, refusal: Refusal) -> Response:
        """Return an error response in the dialect of the clients, with a retry delay where known."""


class ReceiverPorts(Protocol):
    """What a hub provides to receivers."""

    workers: Workers
    """Threads that decompress and decode bodies."""
    progress: StoreProgress
    """The written and stored positions of the hub's journal, for clients that read their own writes."""
    read_back: ReadBack
    """Records that left the journal but may not be readable yet, on a store shared by several hubs."""
    closing: list[Callable[[], object]]
    """Called once when the hub stops, while it still accepts records."""
    links: RunLinks
    """Finds the run of a request that refers to it in another dialect."""
    ending: list[Callable[[], object]]
    """Called once before the store closes."""
    deleting: list[Callable[[str, int], int]]
    """Called with a deleted run's id and the time of its deletion in ns, to delete the receiver's files of the run from
    before that time; returns the bytes freed. Called again after an interruption."""

    deletion: RunDeletion
    """Deletes runs, for dialects whose clients can ask for it."""
    states: RunStates
    """The states of runs, for dialects whose clients query them."""
    edits: Edits
    """The edits of runs, and what users ask of their programs."""
    run_files: list[RunFiles]
    """The files of runs that receivers keep, for the page and the JSON API."""

    blobs: RemoteBlobs | None
    """The bucket of uploaded blobs; None where they stay in `files`."""

    @property
    def limits(self) -> Limits:
        """The hub's limits."""

    @property
    def engine(self) -> Engine:
        """The store, for dialects whose clients query it."""

    @property
    def files(self) -> Path:
        """The folder for uploaded files, with a subfolder for each receiver."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The values of the options that dialects declare, by name."""

    def ingest(self, receiver: str, *, ours: bool = False) -> Ingest:
        """Create the object that masks, packs and journals the records of a receiver."""


def open_receivers(ports: ReceiverPorts) -> list[Receiver]:
    """Create all receivers, built-in and from other packages; ConfigError names one that fails."""
    return [RECEIVERS.find(name)(ports) for name in RECEIVERS.names()]


def ordered_routes(receivers: Iterable[Receiver]) -> list[tuple[Receiver, ReceiverRoute]]:
    """The routes of receivers in the order in which they are matched."""
    found = [(receiver, route) for receiver in receivers for route in receiver.routes()]
    return sorted(found, key=lambda each: each[1].order)
