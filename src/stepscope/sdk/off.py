"""A run that records nothing: what `init` returns when Stepscope is disabled."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from opentelemetry import trace

from stepscope.model.goodput import Goodput, Sums, conclude
from stepscope.sdk.context import NOWHERE, Mark
from stepscope.sdk.delivery_status import NOTHING_LEFT, DeliveryStatus
from stepscope.sdk.run import Run
from stepscope.sdk.spans import Span


class OffSpan(Span):
    """A span that is nowhere: every call does nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        self.duration = 0

    def __enter__(self) -> "OffSpan":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        return None

    def get_span_context(self) -> trace.SpanContext:
        """No ids."""
        return trace.INVALID_SPAN_CONTEXT


OFF_SPAN = OffSpan()


class OffRun(Run):
    """A run whose every call returns at once."""

    def __init__(self) -> None:
        self.id = "disabled"
        self.project = "disabled"
        self.name = None
        self.rank = 0
        self.config = {}
        self.status = "disabled"

    @property
    def home(self) -> Path:
        """Nowhere."""
        return Path("disabled")

    @property
    def mark(self) -> Mark:
        """No step."""
        return NOWHERE

    def log(
        self,
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
        category: str | None = None,
        axis: str | None = None,
        **unknown: Any,
    ) -> None:
        """Do nothing."""

    def step(self, n: int | None = None, name: str = "step", **unknown: Any) -> Span:
        """Open no span."""
        return OFF_SPAN

    def span(self, name: str | None = None, /, **attrs: Any) -> Span:
        """Open no span."""
        return OFF_SPAN

    def event(
        self,
        name: str | None = None,
        data: Mapping[str, Any] | None = None,
        severity: str = "INFO",
        *,
        step: int | None = None,
        **unknown: Any,
    ) -> None:
        """Do nothing."""

    def alert(
        self,
        name: str | None = None,
        severity: str = "WARN",
        message: str = "",
        *,
        step: int | None = None,
        **attrs: Any,
    ) -> None:
        """Do nothing."""

    def exception(self, error: BaseException | None = None, *, severity: str = "ERROR", **attrs: Any) -> None:
        """Do nothing."""

    def goodput(self) -> Goodput:
        """No time was recorded."""
        return conclude(Sums())

    def flush(self, timeout: float | None = None, **unknown: Any) -> DeliveryStatus:
        """Nothing waits."""
        return NOTHING_LEFT

    def finish(
        self, status: str = "finished", *, timeout: float | None = None, wait: float = 0.0, **unknown: Any
    ) -> DeliveryStatus:
        """Nothing ends."""
        return NOTHING_LEFT

    def __reduce__(self) -> tuple[Any, ...]:
        return OffRun, ()

    def __repr__(self) -> str:
        return "<Run disabled>"
