"""`stepscope stop` and `set`: ask a running program to stop, or to change settings that it declared as live."""

import argparse
import json
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.journal_answers import seconds
from stepscope.cli.listed_run import listed_run
from stepscope.cli.options import RUN_HELP, Commands, add_command, home_of, print_answer
from stepscope.hub.client import RUNS, open_client, open_http_client, resolve_run, user
from stepscope.journal.resolve_run import find_run
from stepscope.journal.run_edits import Edits
from stepscope.model.errors import ConfigError
from stepscope.model.run_requests import Request
from stepscope.model.states import UNFINISHED
from stepscope.wire.plain import dumps

_RUN = f"{RUNS}/{{run}}"
_STATES = {
    "requested": "waiting for the program to hear it",
    "received": "the program has heard it",
    "stopped": "it has stopped",
    "ended": "it has ended",
}


def add(commands: Commands) -> None:
    """Register the commands."""
    stopped = add_command(commands, "stop", "ask runs to stop; nothing is killed", stop)
    stopped.add_argument("run", metavar="RUN", nargs="+", help=RUN_HELP)
    changed = add_command(commands, "set", "change live settings of a run, or list them", change)
    changed.add_argument("run", metavar="RUN", help=RUN_HELP)
    changed.add_argument("settings", metavar="NAME=VALUE", nargs="*", help="a setting that the program declared")


def stop(args: argparse.Namespace) -> int:
    """Ask runs to stop, one after the other; ConfigError for one that does not run."""
    home, answers = home_of(args), []
    remote = open_http_client(home)
    for each in args.run:
        if remote is None:
            answers.append(_stop_here(home, find_run(home, each)))
        else:
            run = resolve_run(remote, home, each)
            answers.append({"run": run, "stop": remote.change("POST", f"{_RUN}/stop", run=run)["stop"]})
        if not args.json:
            print(_stop_text(answers[-1]["run"], answers[-1]["stop"]))
    if args.json:
        print(dumps(answers))
    return 0


def _stop_here(home: Path, run: str) -> dict[str, Any]:
    """Ask a run of a home that no hub has open; the answer has the fields of a hub's, and none of what was heard."""
    state, edits = listed_run(home, run).status, Edits(home)
    if state not in UNFINISHED:
        raise ConfigError(f"the run {run} is {state}: only a run that has not ended can be asked to stop or to change")
    attempt, asked = edits.newest_attempt(run), edits.requests(run).stop
    if asked is None or asked.attempt < attempt:
        edits.append(run, user(), request=Request(attempt=attempt, stop=True))
        asked = edits.requests(run).stop
    assert asked is not None
    known = {"id": asked.id, "who": asked.who, "time": seconds(asked.time), "attempt": asked.attempt}
    unknown = {"ranks": 0, "asks": None, "heard_step": None, "last_step": None}
    return {"run": run, "stop": {**known, "state": "requested", **unknown}}


def _stop_text(run: str, asked: dict[str, Any]) -> str:
    unheard = asked["state"] == "received" and asked.get("asks") is False
    rest = ", which has not looked at run.stop_requested yet" if unheard else ""
    return f"{run} is asked to stop by {text.clean(asked['who'])}: {_STATES[asked['state']]}{rest}"


def change(args: argparse.Namespace) -> int:
    """Change live settings, then print all of the run."""
    home = home_of(args)
    given = [_split(each) for each in args.settings]
    with open_client(home) as client:
        run = resolve_run(client, home, args.run)
        found = client.get(f"{_RUN}/control", run=run)
        if given:
            found = client.change("POST", f"{_RUN}/live", _values(found, given), run=run)
        print_answer(args, found, _settings_text(found))
    return 0


def _split(given: str) -> tuple[str, str]:
    name, sign, value = given.partition("=")
    if not sign or not name:
        raise ConfigError(f"{given!r} is not NAME=VALUE")
    return name, value


def _values(found: dict[str, Any], given: list[tuple[str, str]]) -> dict[str, Any]:
    """Read the values: as text where the program declared text, else as JSON where they are."""
    kinds = {each["name"]: each["kind"] for each in found["settings"]}
    return {name: value if kinds.get(name) == "text" else _parsed(value) for name, value in given}


def _parsed(value: str) -> Any:
    try:
        found = json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, bool | int | float) else value


def _settings_text(found: dict[str, Any]) -> str:
    if not found["settings"]:
        return f"{found['run']} has declared no live settings"
    lines = []
    for each in found["settings"]:
        waiting = each["requested"]
        rest = "" if waiting is None else f" -> {text.clean(str(waiting))}, waiting for the program"
        lines.append(f"{text.clean(each['name'])}={text.clean(str(each['value']))}{rest}")
    return "\n".join(lines)
