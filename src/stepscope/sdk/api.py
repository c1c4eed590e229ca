"""The functions of `stepscope`: they act on the current run, and without one do nothing."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stepscope.model import names
from stepscope.model.errors import ConfigError
from stepscope.sdk import announcement, launch, log_capture, process_hooks, run_methods, settings
from stepscope.sdk.off import OFF_SPAN, OffRun
from stepscope.sdk.outcomes import NOTHING_LEFT, DeliveryStatus
from stepscope.sdk.run import Run
from stepscope.sdk.self_diagnosis import Callback, OnAlert
from stepscope.sdk.spans import Span

if TYPE_CHECKING:
    from stepscope.sdk.trainer_rules import Given, TrainerRules

ALERTS_FILE = "stepscope-alerts.yaml"
"""The rules of the project, in the working folder."""

_current: Run | None = None


def init(
    project: str | None = None,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    tags: Iterable[str] | Mapping[str, Any] | str | None = None,
    notes: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
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
    diagnosis: bool | None = None,
    capture_logs: bool | None = None,
    log_level: str | None = None,
    console: bool | None = None,
    otel: bool | None = None,
    sigterm: bool | None = None,
    service_name: str | None = None,
    resource_attributes: Mapping[str, str] | None = None,
    sinks: Iterable[str | Mapping[str, Any]] | str | None = None,
    shipper: str | None = None,
    alerts: "Given | None" = None,
    on_alert: OnAlert | None = None,
    **unknown: Any,
) -> Run:
    """Start a run and make it the current one; a run already current is finished first.

    Never blocks and needs no server. Raises ConfigError for a wrong setting, naming the fix, and nothing else.
    Every argument left out comes from STEPSCOPE_*, stepscope.yaml, OTEL_* or the default, in this order.
    `alerts` are rules that are evaluated in this process, or the file that holds them; without it,
    `stepscope-alerts.yaml` in the working folder. `on_alert` is called with each finding and each rule that fires, on a
    thread of its own; what it raises is counted.
    """
    arguments = {**locals(), **unknown}
    del arguments["config"], arguments["alerts"], arguments["on_alert"], arguments["unknown"]
    if on_alert is not None and not callable(on_alert):
        raise ConfigError(f"init: on_alert must be a function that takes a finding, got {type(on_alert).__name__}")
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"init: config must be a dict, got {type(config).__name__}; for instance, pass vars(args)")
    chosen = None if disabled is None and settings.is_off(os.environ) else settings.load(arguments)
    rules = None if chosen is None or chosen.disabled else _alert_rules(alerts)
    finish()
    if chosen is None or chosen.disabled:
        return OffRun()
    run = Run(chosen, launch.detect(), config)
    _watch(run, rules, on_alert)
    for notice in settings.misspelt(os.environ):
        run.outcomes.notice_text(notice)
    _begin(run)
    announcement.announce(run)
    return run


def _watch(run: Run, rules: "Callable[[Run], TrainerRules] | None", on_alert: OnAlert | None) -> None:
    """Evaluate alert rules together with the diagnosis of a run, and pass on what fires."""
    if rules is not None:
        run.diagnosis.rules = rules(run)
    if on_alert is not None:
        run.diagnosis.callback = callback = Callback(run, on_alert)
        run.finishing.append(callback.close)


def _alert_rules(given: "Given | None") -> "Callable[[Run], TrainerRules] | None":
    """Check the rules; None where there are none, and nothing is imported for them."""
    if given is None and not os.path.isfile(ALERTS_FILE):
        return None
    from stepscope.sdk.trainer_rules import TrainerRules, read_rules

    rules = read_rules(ALERTS_FILE if given is None else given)
    return (lambda run: TrainerRules(run, rules)) if rules else None


def _wants_console(run: Run) -> bool:
    """Return whether to record the console of a run: as set, else for processes of a launcher."""
    if run.settings.console is not None:
        return run.settings.console
    foreign = "_pytest" in sys.modules or "ipykernel" in sys.modules or bool(sys.flags.interactive)
    return run.launch.launcher != "none" and not foreign


def _begin(run: Run) -> None:
    """Connect a run to its process; the connections are removed in reverse order when it finishes."""
    global _current
    _current = run
    run.elsewhere = run_here
    closing = run.periodic.closing
    closing.append(lambda: _forget(run))
    if run.settings.sinks:
        _begin_delivery(run)  # before anything is recorded: the journal is opened with the first record
    process_hooks.follow(run)
    closing.append(process_hooks.watch(run))
    if run.settings.capture_logs:
        closing.append(log_capture.capture(run))
    if _wants_console(run):
        from stepscope.sdk import console_capture  # with subprocess and socket

        closing.append(console_capture.capture(run, run.periodic.collectors))
    if run.settings.otel:
        closing.append(_join_opentelemetry(run))
    if run.settings.probes:
        closing.append(_start_probes(run))
    description = run_methods.described(run.settings)
    started = {"config": run.config, **description, "launcher": run.launch.launcher, **launch.describe()}
    run.event(names.EVENT_STARTED, started)


def _join_opentelemetry(run: Run) -> Callable[[], None]:
    """Record what libraries give to OpenTelemetry; imported here because it loads half of OpenTelemetry's API."""
    from stepscope.sdk import otel

    return otel.install(run)


def _start_probes(run: Run) -> Callable[[], object]:
    """Read the machine from the first rank of a host, and the process from every rank."""
    from stepscope.sdk.probes.watch import Probes, available

    chosen = None if run.launch.local_rank == 0 else available(host=False)
    probes = Probes(run.log_system, run.settings.probe_interval, chosen, notice=run.outcomes.notice_text)
    probes.start()
    return probes.stop


def _begin_delivery(run: Run) -> None:
    """Start delivery to the sinks; imported here because most runs have none."""
    from stepscope.sdk.shipping import shipper

    shipper.begin(run)


def _forget(run: Run) -> None:
    global _current
    if _current is run:
        _current = None


def current_run() -> Run | None:
    """The run that `init` started last, unless it is finished."""
    return _current


def run_here() -> Run:
    """The current run of this process, else one that records nothing: what an unpickled run becomes."""
    return OffRun() if _current is None else _current


def log(
    metrics: Mapping[str, Any] | None = None, step: int | None = None, category: str | None = None, **more: Any
) -> None:
    """Record numbers at a step; see `Run.log`."""
    if _current is not None:
        _current.log(metrics, step, category, **more)


def step(n: int | None = None, name: str = "step", **unknown: Any) -> Span:
    """Open the root span of a step; see `Run.step`."""
    return OFF_SPAN if _current is None else _current.step(n, name, **unknown)


def span(name: str | None = None, /, **attrs: Any) -> Span:
    """Open a span; see `Run.span`."""
    return OFF_SPAN if _current is None else _current.span(name, **attrs)


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


def flush(timeout: float | None = None, **unknown: Any) -> DeliveryStatus:
    """Wait until what was recorded is in the journal; see `Run.flush`."""
    return NOTHING_LEFT if _current is None else _current.flush(timeout, **unknown)


def finish(
    status: str = "finished", *, timeout: float | None = None, wait: float = 0.0, **unknown: Any
) -> DeliveryStatus:
    """End the current run; see `Run.finish`."""
    return NOTHING_LEFT if _current is None else _current.finish(status, timeout=timeout, wait=wait, **unknown)
