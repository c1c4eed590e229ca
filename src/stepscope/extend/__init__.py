"""What integrations use beside the methods of a run: texts and numbers, context, instruments, settings, folders."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.journal import layout
from stepscope.journal.last_step import last_step
from stepscope.sdk import values
from stepscope.sdk.context import attach, current, detach, text_of
from stepscope.sdk.decorators import wrap
from stepscope.sdk.exception_records import exception_attrs, is_first_sight, message_of
from stepscope.sdk.launch import Launch
from stepscope.sdk.launch import detect as detect_launch
from stepscope.sdk.off import OFF_SPAN as NO_SPAN
from stepscope.sdk.off import OffRun
from stepscope.sdk.otel import propagation
from stepscope.sdk.otel.propagation import carried, carry, extract, inject
from stepscope.sdk.run import Run
from stepscope.sdk.settings import KNOWN as SETTINGS
from stepscope.sdk.settings import Settings, level_of
from stepscope.sdk.settings import load as load_settings
from stepscope.sdk.tensors import Refused, step_number

if TYPE_CHECKING:
    from stepscope.sdk.media_values.chart_kinds import TableChart
    from stepscope.sdk.otel.meter import MeterProvider
    from stepscope.sdk.otel.tracer import TracerProvider
    from stepscope.sdk.probes.watch import Probe

__all__ = [
    "NO_SPAN",
    "SETTINGS",
    "Launch",
    "Refused",
    "Settings",
    "attach",
    "attempts",
    "bounds_for",
    "carried",
    "carry",
    "collect_meters",
    "current",
    "describe_error",
    "detach",
    "detect_launch",
    "disabled_run",
    "environment",
    "exception_attrs",
    "extract",
    "inject",
    "is_first_sight",
    "is_ordered",
    "join_as_member",
    "last_step",
    "level_of",
    "load_settings",
    "message_of",
    "meters",
    "number_of",
    "probes",
    "run_folder",
    "safe_run_id",
    "setting",
    "step_number",
    "table_chart",
    "text_of",
    "tracers",
    "wrap",
]


def number_of(value: Any) -> Any:
    """Return the number that a value of any library holds; Refused, or what the value raises, when it holds none.

    A value on a device is returned as something that `measure` and `log` take, and is not waited for.
    """
    return values.read("", value)


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an exception, also of one whose message cannot be read."""
    return f"{type(error).__name__}({message_of(error)!r})"


def meters() -> "MeterProvider":
    """Return OpenTelemetry's meter provider that writes to the current run, independent of the global provider."""
    from stepscope.sdk import self_telemetry

    return self_telemetry.meters()


def tracers() -> "TracerProvider":
    """Return OpenTelemetry's tracer provider that writes to the current run, independent of the global provider."""
    from stepscope.sdk import self_telemetry

    return self_telemetry.tracers()


def collect_meters() -> None:
    """Have the current run collect the instruments of `meters` from now on, not only from the first measurement."""
    from stepscope.sdk import self_telemetry

    self_telemetry.follow()


def bounds_for(unit: str, advised: "tuple[float, ...] | None" = None) -> tuple[float, ...]:
    """Choose the bucket bounds of a histogram: those advised, else such as fit the unit."""
    from stepscope.sdk.otel import aggregate

    return aggregate.bounds_for(unit, advised)


def is_ordered(bounds: "tuple[float, ...]") -> bool:
    """Return whether bounds are finite numbers in increasing order."""
    from stepscope.sdk.otel.aggregate import is_ordered as ordered

    return ordered(bounds)


def probes() -> "list[Probe]":
    """Open the probes of the machine that work here."""
    from stepscope.sdk.probes.watch import available

    return available()


def environment() -> dict[str, str]:
    """Return the variables that make a subprocess part of this trace: `{**os.environ, **environment()}`."""
    return propagation.environment()


def table_chart(columns: Any, rows: Any, drawn: Mapping[str, str]) -> "TableChart":
    """Return a chart of a table, which `log` takes: `drawn` has its style, and which columns are `x`, `y` and `by`."""
    from stepscope.sdk.media_values.chart_kinds import TableChart

    return TableChart(columns, rows, drawn)


def disabled_run() -> Run:
    """Return a run that records nothing, as `stepscope.init` does when Stepscope is disabled."""
    return OffRun()


def setting(run: Run, name: str) -> Any:
    """Return a setting of a run, such as `sinks`; None in a disabled run."""
    return None if run.status == "disabled" else getattr(run.settings, name)


def join_as_member(run: Run) -> None:
    """Leave the start and the end of a run to the process that began it: this one only adds to it."""
    run.main = False


def run_folder(run: Run) -> Path:
    """Return the folder of a run; files beside its journal lie there."""
    return layout.runs_folder(run.home) / run.id


def attempts(run: Run) -> int:
    """Count the attempts of a run in its home; reads the disk."""
    found = map(layout.parse_writer, layout.list_writers(run.home, run.id))
    return len({each.attempt for each in found if each is not None})


def safe_run_id(text: str) -> str:
    """Return a text as it is where it can be a run id, else the nearest one that can, with a digest of the text."""
    if layout.is_safe(text):
        return text
    return f"{layout.slug(text)}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"
