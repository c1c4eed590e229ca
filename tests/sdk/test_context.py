"""The OpenTelemetry context: reached by private names where they are there, by public calls where they are not."""

from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context

from stepscope.sdk import context
from stepscope.sdk.context import SPAN_KEY, context_access


def test_the_installed_release_is_used_without_its_wrappers() -> None:
    """The newest release still has the variable; when this fails the fallback is in use, and spans take longer."""
    assert isinstance(context.otel_variable, ContextVar)
    token = context.attach(Context({"a": 1}))
    assert otel_context.get_value("a") == 1
    context.detach(token)
    assert otel_context.get_value("a") is None


def test_the_key_of_the_span_is_the_one_that_opentelemetry_uses() -> None:
    """A span under that key is what get_current_span finds."""
    span = trace.NonRecordingSpan(trace.SpanContext(1, 2, False))
    assert trace.get_current_span(Context({SPAN_KEY: span})) is span


class Runtime:
    """A runtime context that keeps its values elsewhere than in a ContextVar."""

    def __init__(self) -> None:
        self.entered = [Context()]

    def get_current(self) -> Context:
        """The innermost."""
        return self.entered[-1]

    def attach(self, entered: Context) -> int:
        """Enter one."""
        self.entered.append(entered)
        return len(self.entered)

    def detach(self, token: int) -> None:
        """Leave it."""
        del self.entered[token - 1 :]


@pytest.mark.parametrize("private", [True, False])
def test_a_release_without_the_private_names_is_used_by_its_public_calls(private: bool) -> None:
    """Neither a runtime of another kind nor none at all keeps spans from being entered and left."""
    runtime = Runtime()
    module: Any = SimpleNamespace(_RUNTIME_CONTEXT=runtime) if private else runtime
    access = context_access(module)
    assert access.variable is None
    token = access.attach(Context({"a": 1}))
    assert access.current() == {"a": 1}
    access.detach(token)
    assert access.current() == {}


def test_spans_nest_by_public_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls that every release has are enough for parents and children."""
    from stepscope.sdk import spans
    from stepscope.testing import recorded

    access = context_access(
        SimpleNamespace(**{name: getattr(otel_context, name) for name in ("get_current", "attach", "detach")})
    )
    for name in ("current", "attach", "detach"):
        monkeypatch.setattr(spans, name, getattr(access, name))
    with recorded(otel=True) as recording, recording.run.span("outer"):
        assert trace.get_current_span().name == "outer"  # type: ignore[attr-defined]
        with recording.run.span("inner"):
            assert trace.get_current_span().name == "inner"  # type: ignore[attr-defined]
        assert trace.get_current_span().name == "outer"  # type: ignore[attr-defined]
    assert trace.get_current_span() is trace.INVALID_SPAN
