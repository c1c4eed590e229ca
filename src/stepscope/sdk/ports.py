"""What the parts of the training process know of the run they serve."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from opentelemetry import trace

from stepscope.sdk.context import Mark
from stepscope.sdk.launch import Launch
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.recorder import Recorder
from stepscope.sdk.settings import Settings

PackedLink = tuple[bytes, bytes, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Resource:
    """What OpenTelemetry's SDK has as `resource` on providers and spans: the attributes that all records share."""

    attributes: Mapping[str, Any]
    schema_url: str = ""


class OpenSpan(Protocol):
    """A span that has not ended."""

    start: int
    duration: int | None
    announced: bool

    def packed(self) -> bytes:
        """The span as it is now, as a record."""


class Part(Protocol):
    """One process's part in a run."""

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
    """The ids of the span of the whole run, which every step points to."""
    above: trace.Span | None
    """The span of another process in which this one was started, if it said so."""
    active_mark: Mark | None
    """The open step that was entered last, for threads that are in none themselves."""
    open_steps: list[Mark]
    left_steps: dict[int, tuple[Mark, Any]]
    """Steps that were left, by the id of their mark, each with the way out of the context it was entered in."""
    open_spans: dict[bytes, OpenSpan]
    outcomes: Outcomes
    recorder: Recorder

    @property
    def home(self) -> Path:
        """The folder the run's journal lies under."""

    @property
    def mark(self) -> Mark:
        """The step the calling code is in."""

    def event(
        self,
        name: str,
        data: Mapping[str, Any] | None = None,
        severity: str = "INFO",
        *,
        step: int | None = None,
    ) -> None:
        """Record that something happened."""
