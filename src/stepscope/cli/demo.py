"""`stepscope demo`: train small models in which things go wrong, find out what did, and show it on the page."""

import argparse
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.child_hub import serving
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.cli.progress import Show, progress
from stepscope.hub.client import TOKEN_VARIABLE, HttpClient
from stepscope.model import formatting
from stepscope.model.errors import ConfigError, StepscopeError
from stepscope.model.states import ENDED
from stepscope.wire.plain import dumps

STALLED_SECONDS = 300.0
"""Time limit for a hub that stores nothing more; one that is slow, on a busy machine, is waited for."""
SHOWN_SECONDS = 10.0
"""Time between two lines that say how far it has come."""
MIN_STEPS = 120
_NEEDS = ("numpy", "chdb", "uvicorn", "starlette", "grpc")
_CLUSTER = (sys.executable, "-m", "stepscope.testing.clickhouse_cluster")


class NotStored(StepscopeError):
    """The hub stopped before it had stored and diagnosed the whole run."""


def add(commands: Commands) -> None:
    """Register the command."""
    text = "train small models with faults built in, and show the findings"
    made = add_command(commands, "demo", text, command, home="~/.stepscope-demo")
    made.add_argument("--exit", action="store_true", help="exit after the summary instead of serving until Ctrl-C")
    made.add_argument("--cluster", action="store_true", help="store on a ClickHouse cluster, started for it here")
    made.add_argument("--steps", type=int, metavar="N", help=f"training steps (default 500, at least {MIN_STEPS})")


def command(args: argparse.Namespace, wait: Callable[[], None] = lambda: _for_ever()) -> int:
    """Train with a hub running, print what it found, and keep serving."""
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the demo needs more packages: pip install 'stepscope[demo,hub]' (missing: {missing[0]})")
    from stepscope.demo import demo_plan

    steps = demo_plan.STEPS if args.steps is None else args.steps
    if steps < MIN_STEPS:
        raise ConfigError(f"--steps {steps} is too few for a baseline: at least {MIN_STEPS}")
    home = demo_home(args)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no child outlives it
    with _clustered() if args.cluster else contextlib.nullcontext(), serving(home, _print_line) as address:
        _print_line(f"open {address}/")
        runs = train(home, steps)
        client = HttpClient(address, os.environ.get(TOKEN_VARIABLE, ""))
        found = [findings(client, run) for run in runs]
        print(dumps(found) if args.json else "\n".join(line for each in found for line in summary(each)), flush=True)
        if not args.exit:
            with contextlib.suppress(KeyboardInterrupt):
                _print_line(f"serving {address}/ until Ctrl-C")
                wait()
    if args.exit and not args.json:
        _print_line(
            f"the cluster and its store are gone; the journals are left: stepscope runs --home {home}"
            if args.cluster
            else f"look again with: stepscope hub --home {home}"
        )
    return 0


@contextlib.contextmanager
def _clustered() -> Iterator[None]:
    """Run a cluster of two shards with two replicas each, which the hub takes as its store."""
    _print_line("starting ZooKeeper and four ClickHouse servers")
    with (
        tempfile.TemporaryDirectory(prefix="stepscope-") as folder,
        subprocess.Popen([*_CLUSTER, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            name, _, address = process.stdout.readline().strip().partition("=")
            if not address:
                raise ConfigError(f"--cluster: {process.stderr.read().strip()}")
            os.environ[name] = address.strip("'")
            yield
            del os.environ[name]
        finally:
            process.terminate()


def demo_home(args: argparse.Namespace) -> Path:
    """The given folder, else the demo's own folder beside the default home."""
    home = home_of(args)
    return home if args.home is not None else home.with_name(f"{home.name}-demo")


def train(home: Path, steps: int) -> list[str]:
    """Train both models, one after the other; return the ids of their runs."""
    from stepscope.demo import demo_plan, launcher
    from stepscope.sdk.launch import new_run_id

    game = demo_plan.game_plan(steps)
    stamp = new_run_id()
    spirals, cart = f"{stamp}-spirals", f"{stamp}-cart"
    with progress() as show:
        launcher.train(
            home,
            spirals,
            steps,
            _part(show, "training", "loss"),
            lambda: _print_line("a rank died: resuming from checkpoint"),
        )
        launcher.play(home, cart, game, _part(show, "playing", "reward"))
    return [spirals, cart]


def _part(show: Show, what: str, word: str) -> Callable[[int, int, float], None]:
    return lambda done, total, value: show(what, done, total, f"{word} {formatting.number(value)}")


def findings(
    client: HttpClient,
    run: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Wait until the hub has stored and diagnosed a run, and return its findings."""
    begun = moved = shown = clock()
    before: object = None
    while True:
        rows = client.get("/api/runs", filter=f'id = "{run}"')["runs"]
        found = client.get("/api/runs/{run}/findings", run=run) if rows and rows[0]["status"] in ENDED else None
        if found is not None and found["complete"]:
            return {**rows[0], **found}
        now, state = clock(), [(row["status"], row["counts"]) for row in rows]
        if state != before:
            before, moved = state, now
        if now - moved > STALLED_SECONDS:
            raise NotStored(f"the hub has stored nothing more of run {run} for {STALLED_SECONDS:.0f} s")
        if now - shown > SHOWN_SECONDS:
            shown, points = now, sum(row["counts"]["points"] for row in rows)
            _print_line(f"waiting for the hub: {formatting.count(points)} points stored after {now - begun:.0f} s")
        sleep(0.2)


def summary(run: dict[str, Any]) -> list[str]:
    """Summarise a run as text."""
    counts = run["counts"]
    head = (
        f"{run['project']}/{run['name']}  {run['status']}  step {formatting.ordinal(run['step'])}, "
        f"ranks {run['ranks']}, attempts {run['attempts']}, {formatting.count(counts['points'])} points, "
        f"{formatting.count(counts['spans'])} spans, {formatting.count(counts['logs'])} log lines"
    )
    found = run["findings"]
    lines = [f"  {each['severity']:<5}  {each['kind'].replace('_', ' '):<16}  {each['text']}" for each in found]
    return ["", head, f"  run {run['id']}", *map(text.clean, lines or ["  nothing went wrong"])]


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _for_ever() -> None:
    while True:
        time.sleep(3600)
