"""`stepscope doctor`: check what could keep this machine from recording, and say how to fix it."""

import argparse
import contextlib
import dataclasses
import os
import platform
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from stepscope import __version__
from stepscope.cli import text
from stepscope.cli.options import Commands, add_command, home_of, print_answer
from stepscope.cli.probe import advise
from stepscope.cli.probe import probe as probe_sink
from stepscope.cli.ship import describe
from stepscope.journal import layout
from stepscope.journal.quarantine import Quarantine, quarantined
from stepscope.model import formatting
from stepscope.model.errors import ConfigError
from stepscope.model.redaction import redact
from stepscope.sdk import core, launch, settings
from stepscope.sdk.probes import watch
from stepscope.sdk.settings import MIB
from stepscope.sdk.shipping.delivery_state import latest_reports, pending
from stepscope.wire import frames
from stepscope.wire.plain import plain

OK, WARN, FAIL = "ok", "warn", "fail"
_PACKAGES = ("msgspec", "opentelemetry-api", "PyYAML", "psutil", "torch")
_NEEDED = ("msgspec", "opentelemetry-api")
_LAUNCHERS = {
    "torchrun": ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_", "TORCHELASTIC_"),
    "Slurm": (
        "SLURM_JOB_ID",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NTASKS",
        "SLURM_STEP_ID",
        "SLURM_ARRAY_",
    ),
    "MPI": ("OMPI_COMM_WORLD_", "PMI_", "PMIX_", "MPI_", "MV2_COMM_WORLD_"),
    "Ray": ("RAY_JOB_ID", "RAY_ADDRESS"),
}
_LITTLE_SPACE = 1024 * MIB
_NO_SPACE = 16 * MIB


class Finding(NamedTuple):
    """The result of one check."""

    mark: str
    topic: str
    text: str
    data: Any = None
    """The same for programs."""


def add(commands: Commands) -> None:
    """Register the command."""
    made = add_command(commands, "doctor", "check that this machine can record, and say what to do", command)
    made.add_argument("--sink", metavar="SINK", help="send a record to this sink instead, and explain what fails")


def command(args: argparse.Namespace) -> int:
    """Print the results; 1 when something keeps Stepscope from recording."""
    try:
        home = home_of(args)
    except ConfigError:
        home = settings.default_home()
    if args.sink is not None:
        findings = [Finding(OK if ok else FAIL, sink, message) for ok, sink, message in probe_sink(args.sink)]
    else:
        findings = [finding for check in CHECKS for finding in check(home)]
    failed = any(finding.mark == FAIL for finding in findings)
    print_answer(args, {"ok": not failed, "findings": [finding._asdict() for finding in findings]}, _lines(findings))
    return 1 if failed else 0


def _lines(findings: list[Finding]) -> list[str]:
    wide = max(len(finding.topic) for finding in findings)
    return [f"{each.mark:<4}  {each.topic:<{wide}}  {text.clean(each.text)}" for each in findings]


def check_versions(home: Path) -> Iterator[Finding]:
    """Python, the required packages, and the optional ones."""
    python = platform.python_version()
    yield Finding(OK, "python", f"{python} on {platform.system()} {platform.machine()}", python)
    yield Finding(OK, "stepscope", __version__, __version__)
    yield _core()
    for name in _PACKAGES:
        try:
            found = version(name)
        except PackageNotFoundError:
            if name in _NEEDED:
                yield Finding(FAIL, name, f"is not installed: pip install {name}")
            continue
        yield Finding(OK, name, found, found)


def _core() -> Finding:
    """Which of the two cores the calls of `log`, `step` and `span` have here."""
    from stepscope.sdk import run  # noqa: F401  # it is chosen when runs are imported

    word = core.chosen()
    if word == "compiled":
        return Finding(OK, "core", word, word)
    why = f"{core.FORCE_PYTHON} is set" if core.is_forced() else "the compiled one was not built for this interpreter"
    return Finding(OK, "core", f"{word}: {why}; calls take three to four times as long", word)


def check_settings(home: Path) -> Iterator[Finding]:
    """The settings that a run started here would have, with secrets masked."""
    try:
        found = settings.load({})
    except ConfigError as error:
        yield Finding(FAIL, "settings", str(error))
        return
    values = {each.name: getattr(found, each.name) for each in dataclasses.fields(found)}
    values["sinks"] = tuple(map(repr, found.sinks))  # without their options, which may hold secrets
    defaults = settings.Settings()
    changed = {key: value for key, value in values.items() if value != getattr(defaults, key)}
    message = ", ".join(f"{key}={value}" for key, value in redact(changed).items())
    yield Finding(OK, "settings", message or "all at their defaults", redact(values))
    if found.disabled:
        yield Finding(WARN, "disabled", "nothing is recorded: unset STEPSCOPE_DISABLED")


def check_home(home: Path) -> Iterator[Finding]:
    """Check that the home can be written and has space."""
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        yield Finding(FAIL, "home", f"{home} cannot be written ({error.strerror}): set STEPSCOPE_HOME", str(home))
        return
    yield Finding(OK, "home", f"{home} can be written" + ("" if home.exists() else " (not made yet)"), str(home))
    free = shutil.disk_usage(place).free
    mark = FAIL if free < _NO_SPACE else WARN if free < _LITTLE_SPACE else OK
    advice = "" if mark == OK else ": free some, or set STEPSCOPE_HOME"
    yield Finding(mark, "space", f"{formatting.size(free)} free{advice}", free)


def check_journals(home: Path) -> Iterator[Finding]:
    """Check the journals for damage."""
    runs = layout.list_runs(home)
    size, hurt = 0, {}
    for run in runs:
        folders = [layout.writer_folder(home, run, name) for name in layout.list_writers(home, run)]
        for path in (path for folder in folders for path in layout.list_segments(folder)):
            read, damaged = _examine(path)
            size += read
            if damaged:
                hurt[str(path)] = damaged
    message = f"{len(runs)} run{'s' * (len(runs) != 1)}, {formatting.size(size)}"
    yield Finding(OK, "journals", message, {"runs": len(runs), "bytes": size})
    for name, damaged in hurt.items():
        message = f"{damaged} damaged stretches in {name}; the rest is readable"
        yield Finding(WARN, "damage", message, {name: damaged})


def _examine(path: Path) -> tuple[int, int]:
    """The bytes of a segment and its damaged ranges; an unfinished frame at its end does not count."""
    try:
        data = path.read_bytes()
    except OSError:
        return 0, 1
    return len(data), sum(isinstance(found, frames.Damage) for found in frames.scan(data))


def check_delivery(home: Path) -> Iterator[Finding]:
    """What is not delivered, which process is working on it, and why sinks are behind, as shippers last reported."""
    for left in pending(home):
        yield Finding(OK if left.shipper and not left.problem else WARN, "delivery", describe(left), left)
    for report in latest_reports(home).values():
        if report.problem:
            when = text.moment(int(report.time * 1e9))
            message = f"{report.sink} ({report.place}) at {when}: {advise(report.problem)}"
            yield Finding(WARN, "delivery", message, report)


def check_hub(home: Path) -> Iterator[Finding]:
    """Whether the hub of this home works; without one, whether the store that STEPSCOPE_STORE names answers."""
    try:
        from stepscope.hub.client import HubError, open_http_client
        from stepscope.hub.home_store import store_address
    except ImportError:
        return
    client = open_http_client(home, timeout=10.0)
    if client is None:
        yield from _check_store(store_address())
        return
    try:
        health = client.get("/api/health")
    except HubError as error:
        yield Finding(WARN, "hub", str(error))
        return
    problem = health["trouble"]
    yield Finding(WARN if problem else OK, "hub", problem or "works", {"status": health["status"], "trouble": problem})
    if health.get("cluster"):
        cluster = health["cluster"]
        away, down = len(cluster["missing_shards"]), len(cluster["servers_down"])
        message = f"{cluster['shards'] - away} of {cluster['shards']} shards answer, {down} servers are down"
        yield Finding(WARN if away or down or not cluster["zookeeper"] else OK, "cluster", message, cluster)


def _check_store(where: str) -> Iterator[Finding]:
    if not where:
        return
    try:
        from stepscope.hub.store.cluster.address import parse
        from stepscope.hub.store.cluster.server import Server
        from stepscope.hub.store.engine import EngineError
    except ImportError as error:
        yield Finding(WARN, "store", f"pip install 'stepscope[cluster]' ({error.name} is missing)")
        return
    try:
        with contextlib.closing(Server(parse(where))) as server:
            state = server.cluster_state()
    except (ConfigError, EngineError) as error:
        yield Finding(WARN, "store", str(error))
        return
    problem = state.problem if state is not None else ""
    yield Finding(WARN if problem else OK, "store", problem or f"{parse(where)} answers", plain(state))


def check_quarantine(home: Path) -> Iterator[Finding]:
    """What sinks rejected, and why."""
    for sink in quarantined(home):
        notes = [entry.note for entry in Quarantine(home, sink).entries()]
        if notes:
            count = sum(note.records for note in notes)
            reasons = Counter({note.reason: 0 for note in notes})
            for note in notes:
                reasons[note.reason] += note.records
            why = advise(reasons.most_common(1)[0][0])
            message = (
                f"{sink} refused {count:,} record{'' if count == 1 else 's'}: {why}; see `stepscope quarantine list`"
            )
            yield Finding(WARN, "quarantine", message, {"sink": sink, "records": count, "reasons": dict(reasons)})


def check_probes(home: Path) -> Iterator[Finding]:
    """What can be read of the machine, and why the rest cannot."""
    found, reasons = watch.survey()
    for probe in found:
        yield Finding(OK, probe.name, probe.detail)
        probe.close()
    for name, reason in reasons.items():
        yield Finding(WARN, name, reason)


def check_launcher(home: Path) -> Iterator[Finding]:
    """The launcher of this process, from its environment."""
    here = launch.detect()
    message = f"{here.launcher}: rank {here.rank} of {here.world_size}" + (f", run {here.run}" if here.run else "")
    yield Finding(OK, "launcher", message, here._asdict())
    for name, prefixes in _LAUNCHERS.items():
        seen = redact({key: value for key, value in sorted(os.environ.items()) if key.startswith(prefixes)})
        if seen:
            yield Finding(OK, name, " ".join(f"{key}={value}" for key, value in seen.items()), seen)


CHECKS: tuple[Callable[[Path], Iterator[Finding]], ...] = (
    check_versions,
    check_settings,
    check_home,
    check_journals,
    check_delivery,
    check_hub,
    check_quarantine,
    check_probes,
    check_launcher,
)
"""Every check; add a function here to check more."""
