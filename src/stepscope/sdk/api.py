"""The functions of `stepscope`: they act on the current run, and without one do nothing.

What a run needs is imported by the first `init`: a program that never starts one does not pay for it.
"""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.sdk.outcomes import DeliveryStatus
    from stepscope.sdk.run import Run
    from stepscope.sdk.self_diagnosis import OnAlert
    from stepscope.sdk.spans import Span
    from stepscope.sdk.trainer_rules import Given

_current: "Run | None" = None


def init(
    project: str | None = None,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    tags: Iterable[str] | Mapping[str, Any] | str | None = None,
    notes: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
    parent: "str | Run | None" = None,
    from_step: int | None = None,
    run_id: str | None = None,
    home: str | os.PathLike[str] | None = None,
    disabled: bool | None = None,
    quiet: bool | None = None,
    flush_interval: float | None = None,
    exit_timeout: float | None = None,
    memory_quota: int | str | None = None,
    disk_quota: int | str | None = None,
    probes: bool | None = None,
    probe_interval: float | None = None,
    overhead_budget: float | None = None,
    diagnosis: bool | None = None,
    capture_logs: bool | None = None,
    capture_code: bool | None = None,
    log_level: str | None = None,
    console: bool | None = None,
    otel: bool | None = None,
    sigterm: bool | None = None,
    service_name: str | None = None,
    resource_attributes: Mapping[str, str] | None = None,
    sinks: Iterable[str | Mapping[str, Any]] | str | None = None,
    shipper: str | None = None,
    alerts: "Given | None" = None,
    on_alert: "OnAlert | None" = None,
    **unknown: Any,
) -> "Run":
    """Start a run and make it the current one; a run already current is finished first.

    Never blocks and needs no server. Raises ConfigError for a wrong setting, naming the fix, and nothing else.
    Every argument left out comes from STEPSCOPE_*, stepscope.yaml, OTEL_* or the default, in this order.
    `alerts` are rules that are evaluated in this process, or the file that holds them; without it,
    `stepscope-alerts.yaml` in the working folder. `on_alert` is called with each finding and each rule that fires, on a
    thread of its own; what it raises is counted.
    """
    global _current
    arguments = {**locals(), **unknown}
    del arguments["config"], arguments["alerts"], arguments["on_alert"], arguments["unknown"]
    from stepscope.sdk import startup

    create = startup.check(arguments, config, alerts, on_alert)
    finish()
    if create is None:
        return run_here()
    run = _current = create()
    run.elsewhere = run_here
    run.periodic.closing.append(lambda: _forget(run))
    startup.connect(run)
    return run


def _forget(run: "Run") -> None:
    global _current
    if _current is run:
        _current = None


def current_run() -> "Run | None":
    """The run that `init` started last, unless it is finished."""
    return _current


def run_here() -> "Run":
    """The current run of this process, else one that records nothing: what an unpickled run becomes."""
    if _current is not None:
        return _current
    from stepscope.sdk.off import OffRun

    return OffRun()


def log(
    metrics: Mapping[str, Any] | None = None, step: int | None = None, category: str | None = None, **more: Any
) -> None:
    """Record numbers at a step; see `Run.log`."""
    if _current is not None:
        _current.log(metrics, step, category, **more)


def step(n: int | None = None, name: str = "step", **unknown: Any) -> "Span":
    """Open the root span of a step; see `Run.step`."""
    return _off_span() if _current is None else _current.step(n, name, **unknown)


def span(name: str | None = None, /, **attrs: Any) -> "Span":
    """Open a span; see `Run.span`."""
    return _off_span() if _current is None else _current.span(name, **attrs)


def event(name: str | None = None, data: Mapping[str, Any] | None = None, severity: str = "INFO", **more: Any) -> None:
    """Record that something happened; see `Run.event`."""
    if _current is not None:
        _current.event(name, data, severity, **more)


def alert(
    name: str | None = None, severity: str = "WARN", message: str = "", *, step: int | None = None, **attrs: Any
) -> None:
    """Record something that needs attention; see `Run.alert`."""
    if _current is not None:
        _current.alert(name, severity, message, step=step, **attrs)


def tag(*tags: Any, **named: Any) -> None:
    """Tag the run; see `Run.tag`."""
    if _current is not None:
        _current.tag(*tags, **named)


def untag(*names: Any, **unknown: Any) -> None:
    """Remove tags from the run; see `Run.untag`."""
    if _current is not None:
        _current.untag(*names, **unknown)


def note(text: str | None = None, **unknown: Any) -> None:
    """Set the notes of the run; see `Run.note`."""
    if _current is not None:
        _current.note(text, **unknown)


def rename(name: str | None = None, **unknown: Any) -> None:
    """Give the run another name; see `Run.rename`."""
    if _current is not None:
        _current.rename(name, **unknown)


def sample(row: Mapping[Any, Any] | None = None, /, **columns: Any) -> None:
    """Record a row of a table; see `Run.sample`."""
    if _current is not None:
        _current.sample(row, **columns)


def flush(timeout: float | None = None, **unknown: Any) -> "DeliveryStatus":
    """Wait until what was recorded is in the journal; see `Run.flush`."""
    return _nothing_left() if _current is None else _current.flush(timeout, **unknown)


def finish(
    status: str = "finished", *, timeout: float | None = None, wait: float = 0.0, **unknown: Any
) -> "DeliveryStatus":
    """End the current run; see `Run.finish`."""
    return _nothing_left() if _current is None else _current.finish(status, timeout=timeout, wait=wait, **unknown)


def _off_span() -> "Span":
    from stepscope.sdk.off import OFF_SPAN

    return OFF_SPAN


def _nothing_left() -> "DeliveryStatus":
    from stepscope.sdk.outcomes import NOTHING_LEFT

    return NOTHING_LEFT
