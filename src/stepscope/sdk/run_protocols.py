"""Protocols: what the other modules of the SDK use of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import trace

from stepscope.sdk.context import Mark
from stepscope.sdk.launch import Launch
from stepscope.sdk.outcomes import Delivery, Outcomes
from stepscope.sdk.overhead import Overhead
from stepscope.sdk.recorder import Recorder
from stepscope.sdk.settings import Settings

if TYPE_CHECKING:
    from stepscope.model.run_requests import Asked

PackedLink = tuple[bytes, bytes, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Resource:
    """The `resource` of providers and spans, as in OpenTelemetry's SDK: the attributes that all records share."""

    attributes: Mapping[str, Any]
    schema_url: str = ""


class OpenSpan(Protocol):
    """A span that has not ended."""

    start: int
    duration: int | None
    announced: bool

    def packed(self) -> bytes:
        """Return the span in its present state as a packed record."""


class Part(Protocol):
    """A run, as far as one process takes part in it."""

    id: str
    project: str
    name: str | None
    rank: int
    settings: Settings
    launch: Launch
    main: bool
    status: str
    preempted: bool
    started: int
    started_monotonic: int
    link: PackedLink
    """The ids of the span of the whole run, to which every step links."""
    above: trace.Span | None
    """The span of the parent process, if the environment has one."""
    active_mark: Mark | None
    """The open step that was entered last, for threads that have not entered one themselves."""
    last_mark: Mark | None
    """The same, or the one before where none is open."""
    open_steps: list[Mark]
    left_steps: dict[int, tuple[Mark, Any]]
    """Steps that were exited, by the id of their mark, each with the token that resets its context."""
    open_spans: dict[bytes, OpenSpan]
    delivery: Delivery
    outcomes: Outcomes
    recorder: Recorder
    overhead: Overhead
    asks_to_stop: bool
    """Whether the program has looked at `stop_requested`."""
    stop_asked: "Asked | None"
    """The request of a user to stop, once this process heard of it."""

    @property
    def home(self) -> Path:
        """The home folder of the run's journal."""

    @property
    def mark(self) -> Mark:
        """The current step of the calling code."""

    def event(
        self,
        name: str,
        data: Mapping[str, Any] | None = None,
        severity: str = "INFO",
        *,
        step: int | None = None,
    ) -> None:
        """Record that something happened."""


class AlertingPart(Part, Protocol):
    """A process's part in a run that can raise alerts."""

    def alert(
        self, name: str, severity: str = "WARN", message: str = "", *, step: int | None = None, **attrs: Any
    ) -> None:
        """Record something that needs attention."""
