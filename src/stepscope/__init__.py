"""Stepscope, a stethoscope for training runs: this module is the whole public API."""

from typing import TYPE_CHECKING, Any

from stepscope.model.errors import ConfigError, StepscopeError
from stepscope.sdk.api import (
    alert,
    current_run,
    event,
    finish,
    flush,
    init,
    log,
    note,
    rename,
    sample,
    span,
    step,
    tag,
    untag,
)

if TYPE_CHECKING:
    from stepscope.notebook import show
    from stepscope.sdk.decorators import capture_exceptions, traced
    from stepscope.sdk.media_values.chart_kinds import Confusion, Curve
    from stepscope.sdk.media_values.kinds import Audio, Figure, File, Histogram, Html, Image, Video
    from stepscope.sdk.run import Run
    from stepscope.sdk.sample_records import Table
    from stepscope.sdk.spans import Span
    from stepscope.table import read

__version__ = "0.1.0"
__all__ = [
    "Audio",
    "ConfigError",
    "Confusion",
    "Curve",
    "Figure",
    "File",
    "Histogram",
    "Html",
    "Image",
    "Run",
    "Span",
    "StepscopeError",
    "Table",
    "Video",
    "alert",
    "capture_exceptions",
    "current_run",
    "event",
    "finish",
    "flush",
    "init",
    "log",
    "note",
    "read",
    "rename",
    "sample",
    "show",
    "span",
    "step",
    "tag",
    "traced",
    "untag",
]
_ON_USE = {
    **dict.fromkeys(
        ("Audio", "Figure", "File", "Histogram", "Html", "Image", "Video"), "stepscope.sdk.media_values.kinds"
    ),
    **dict.fromkeys(("Confusion", "Curve"), "stepscope.sdk.media_values.chart_kinds"),
    "Run": "stepscope.sdk.run",
    "Span": "stepscope.sdk.spans",
    "Table": "stepscope.sdk.sample_records",
    "capture_exceptions": "stepscope.sdk.decorators",
    "read": "stepscope.table",
    "show": "stepscope.notebook",
    "traced": "stepscope.sdk.decorators",
}
"""Names whose modules are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_ON_USE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
