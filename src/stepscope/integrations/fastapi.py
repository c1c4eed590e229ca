"""FastAPI: one span for each request, as a child of the caller's span, and the standard server metrics."""

from collections.abc import Iterable
from typing import Any

from stepscope import extend
from stepscope.model.errors import ConfigError


def instrument(app: Any, *, excluded_urls: str | Iterable[str] | None = None) -> Any:
    """Record each request of an app as a span of the current run; return the app.

    `excluded_urls` are regular expressions of paths that are not recorded, such as one that clients poll. ConfigError
    if opentelemetry-instrumentation-fastapi is not installed.
    """
    excluded = excluded_urls if excluded_urls is None or isinstance(excluded_urls, str) else ",".join(excluded_urls)
    _instrumentor().instrument_app(
        app,
        tracer_provider=extend.tracers(),
        meter_provider=extend.meters(),
        excluded_urls=excluded,
        exclude_spans=["receive", "send"],
    )
    return app


def uninstrument(app: Any) -> None:
    """Stop recording an app's requests."""
    _instrumentor().uninstrument_app(app)


def _instrumentor() -> Any:
    try:
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    except ImportError:
        text = "integrations.fastapi needs a package: pip install opentelemetry-instrumentation-fastapi"
        raise ConfigError(text) from None
    return FastAPIInstrumentor
