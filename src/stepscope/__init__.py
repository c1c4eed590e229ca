"""Stepscope, a stethoscope for training runs: this module is the whole public API."""

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
    span,
    step,
    tag,
    untag,
)
from stepscope.sdk.decorators import capture_exceptions, traced
from stepscope.sdk.run import Run
from stepscope.sdk.spans import Span
from stepscope.table import read

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "Run",
    "Span",
    "StepscopeError",
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
    "span",
    "step",
    "tag",
    "traced",
    "untag",
]
