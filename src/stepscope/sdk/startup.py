"""The start of a run: checks what `init` was given, and connects the run to its process."""

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stepscope.model import names
from stepscope.model.errors import ConfigError
from stepscope.sdk import launch, log_capture, process_hooks, settings
from stepscope.sdk.run import Run

if TYPE_CHECKING:
    from stepscope.sdk.self_diagnosis import OnAlert, SelfDiagnosis
    from stepscope.sdk.trainer_rules import Given, TrainerRules

ALERTS_FILE = "stepscope-alerts.yaml"
"""The rules of the project, in the working folder."""


def check(
    arguments: Mapping[str, Any], config: Mapping[str, Any] | None, alerts: "Given | None", on_alert: "OnAlert | None"
) -> Callable[[], Run] | None:
    """Return what creates the run; None when Stepscope is disabled. Raises ConfigError as `init` describes."""
    if on_alert is not None and not callable(on_alert):
        raise ConfigError(f"init: on_alert must be a function that takes a finding, got {type(on_alert).__name__}")
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(f"init: config must be a dict, got {type(config).__name__}; for instance, pass vars(args)")
    chosen = None if arguments["disabled"] is None and settings.is_off(os.environ) else settings.load(arguments)
    if chosen is None or chosen.disabled:
        return None
    return functools.partial(_create, chosen, config, _alert_rules(alerts), on_alert)


def _create(
    chosen: settings.Settings,
    config: Mapping[str, Any] | None,
    rules: "Callable[[Run], TrainerRules] | None",
    on_alert: "OnAlert | None",
) -> Run:
    run = Run(chosen, launch.detect(), config, _diagnosing(chosen, rules, on_alert))
    for notice in settings.misspelt(os.environ):
        run.outcomes.notice_text(notice)
    return run


def _diagnosing(
    chosen: settings.Settings, rules: "Callable[[Run], TrainerRules] | None", on_alert: "OnAlert | None"
) -> "Callable[[Run], SelfDiagnosis] | None":
    """What judges the records of a run in its own process; None where no setting, rule or callback asks for that."""
    wanted = on_alert is not None if chosen.diagnosis is None else chosen.diagnosis
    if not wanted and rules is None:
        return None
    from stepscope.sdk.self_diagnosis import SelfDiagnosis

    return lambda run: SelfDiagnosis(run, None if rules is None else rules(run), on_alert, wanted=wanted)


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
    foreign = "_pytest" in sys.modules or "ipykernel.kernelapp" in sys.modules or bool(sys.flags.interactive)
    return run.launch.launcher != "none" and not foreign


def connect(run: Run) -> None:
    """Connect a run to its process; the connections are removed in reverse order when it finishes."""
    closing = run.periodic.closing
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
    if run.settings.capture_code and run.launch.rank == 0:
        from stepscope.sdk import code_capture  # with subprocess

        closing.append(code_capture.capture(run, "."))
    description = _described(run.settings)
    started = {"config": run.config, **description, "launcher": run.launch.launcher, **launch.describe()}
    run.event(names.EVENT_STARTED, started)
    _announce(run)


def _announce(run: Run) -> None:
    """Print on standard error how to open the run, from rank 0 and, unless it is asked for, at a terminal only."""
    try:
        quiet = run.settings.quiet
        if run.rank == 0 and (sys.stderr.isatty() if quiet is None else not quiet):
            from stepscope.sdk.announcement import line  # imported on use

            sys.stderr.write(f"{line(run)}\n")
            sys.stderr.flush()
    except Exception:  # standard error may be closed or None
        return


def _join_opentelemetry(run: Run) -> Callable[[], None]:
    """Record what libraries give to OpenTelemetry; imported here because it loads half of OpenTelemetry's API."""
    from stepscope.sdk import otel

    return otel.install(run)


def _start_probes(run: Run) -> Callable[[], object]:
    """Read the machine from the first rank of a host, and the process from every rank."""
    from stepscope.sdk.probes.gpu_totals import GpuTotals
    from stepscope.sdk.probes.watch import Probes, available

    chosen = None if run.launch.local_rank == 0 else available(host=False)
    probes = Probes(
        run.log_system,
        run.settings.probe_interval,
        chosen,
        notice=run.outcomes.notice_text,
        overhead=run.overhead,
        totals=GpuTotals(run.launch.local_rank, run.launch.world_size, time.monotonic()),
    )
    probes.start()
    return probes.stop


def _begin_delivery(run: Run) -> None:
    """Start delivery to the sinks; imported here because most runs have none."""
    from stepscope.sdk.shipping import shipper

    shipper.begin(run)


def _described(chosen: settings.Settings) -> dict[str, Any]:
    """Return the description from the settings as attributes of the first event."""
    description = {"tags": dict(chosen.tags), "notes": chosen.notes, "group": chosen.group}
    description |= {"job_type": chosen.job_type, "parent": chosen.parent}
    began = {} if chosen.from_step is None else {"from_step": chosen.from_step}
    return {**{key: value for key, value in description.items() if value}, **began}
