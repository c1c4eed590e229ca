"""`stepscope mcp`: serve the queries to coding agents over the Model Context Protocol, on standard input and output."""

import argparse
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from stepscope import __version__
from stepscope.cli.options import Commands, add_command, home_of
from stepscope.cli.run_text import flatten
from stepscope.hub.client import HubClient, open_client, resolve_run
from stepscope.model.errors import ConfigError, StepscopeError
from stepscope.wire.plain import dumps

_INSTRUCTIONS = (
    "Stepscope records training runs: metrics by step, spans, logs, events, alerts, on every rank. Begin with `runs` "
    "and `findings`; `step` explains one step; `series` reads metrics over time. {access} "
    "NaN and infinities are the strings NaN, Infinity and -Infinity. Times are seconds since 1970 unless named _ms."
)


_READ_ONLY = "Everything is read-only."
_CONTROLS = "All but `stop` and `set_live` is read-only: call these only when the user asked for it."


def add(commands: Commands) -> None:
    """Register the command."""
    text = "serve the queries to coding agents over the Model Context Protocol (stdio)"
    made = add_command(commands, "mcp", text, command, json=False)
    made.add_argument("--control", action="store_true", help="let agents stop runs and change their live settings")


def command(args: argparse.Namespace) -> int:
    """Serve until the client closes standard input."""
    server(home_of(args), control=args.control).run("stdio")
    return 0


def server(home: Path, *, control: bool = False) -> Any:
    """The server with one tool for each question; with `control` also those that ask something of a program."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise ConfigError(f"mcp 2 or later is needed: pip install 'stepscope[mcp]' ({error})") from None
    instructions = _INSTRUCTIONS.format(access=_CONTROLS if control else _READ_ONLY)
    made = MCPServer("stepscope", instructions=instructions, version=__version__, log_level="ERROR")
    questions = Questions(home)
    for name in (*ALL, *(CONTROLS if control else ())):
        question = _as_tool(getattr(questions, name), ToolError)
        hints = ToolAnnotations(
            read_only_hint=name in ALL,
            destructive_hint=name not in ALL,
            idempotent_hint=True,
            open_world_hint=False,
        )
        made.tool(name, annotations=hints, structured_output=False)(question)
    return made


def _as_tool(question: Callable[..., Any], refusal: type[Exception]) -> Callable[..., Any]:
    """Wrap a question: answer with compact JSON, and report errors as text."""

    @functools.wraps(question)
    def call(**given: Any) -> str:
        try:
            return dumps(question(**given), indent=None)
        except StepscopeError as error:
            raise refusal(str(error)) from None

    return call


MAX_ROWS = 500
_COMPARED = ("id", "name", "status", "step", "duration")


class Questions:
    """The tools for one home folder. A run is identified by its id, a prefix of it, or its name."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._one_at_a_time = threading.Lock()

    def runs(self, filter: str = "", sort: str = "-created", metrics: list[str] | None = None, limit: int = 20) -> Any:
        """List training runs, the newest first: status, step, ranks, attempts, duration, configuration, counts.

        `filter` picks runs, such as `status = running and metrics.loss < 0.5 and config.lr = 3e-4 or name ~ "base"`.
        `metrics` names metrics whose latest value is wanted; `sort` is a field, with `-` in front: the highest first.
        """
        with self._asking() as client:
            return client.get("/api/runs", filter=filter or None, sort=sort, metric=metrics or [], limit=limit)

    def run(self, run: str = "latest") -> Any:
        """Describe one run: configuration, environment, processes and endings, and its metrics with their extremes."""
        with self._asking() as client:
            id = resolve_run(client, self._home, run)
            return {**client.get("/api/runs/{run}", run=id), **client.get("/api/runs/{run}/keys", run=id)}

    def findings(self, run: str = "latest") -> Any:
        """Say what went wrong in a run, worst first: crashes, NaN, spikes, KL, slow steps, stragglers, alerts.

        Each finding names the step, attempt, rank, and metric or span. Start here, then ask `step` for the details.
        """
        return self._of_run(run, "/api/runs/{run}/findings")

    def series(
        self,
        keys: list[str],
        run: str = "latest",
        points: int = 200,
        x: Literal["step", "time", "relative"] = "step",
        start: float | None = None,
        end: float | None = None,
        by_rank: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
    ) -> Any:
        """Read metrics as lines of at most about `points` marks; every spike is kept (min and max of each bucket).

        `start` and `end` bound x (steps, or seconds), to see a stretch in full. `by_rank` gives each rank its line,
        `rank` that of one; `attempt` is what one attempt logged, where later ones did the same steps again.
        """
        which = {"from": start, "to": end, "by_rank": _bool_text(by_rank), "rank": rank, "attempts": attempt}
        return self._of_run(run, "/api/runs/{run}/series", key=keys, points=points, x=x, **which)

    def step(self, step: int, run: str = "latest", attempt: int | None = None) -> Any:
        """Show everything at one step on all ranks: values against the steps before (z), span trees against the usual
        durations, the critical path, logs, events, alerts, the machine's state, and the nearest anomalies.

        `attempt` is what one attempt did, such as the one that crashed; without it, the newest that came to the step.
        """
        return self._of_run(run, "/api/runs/{run}/steps/{step}", step=step, attempt=attempt)

    def spans(
        self,
        run: str = "latest",
        name: str | None = None,
        step: int | None = None,
        rank: int | None = None,
        min_ms: float | None = None,
        error: bool | None = None,
        slowest: bool = True,
        limit: int = 50,
    ) -> Any:
        """Search spans (timed operations) by name, step, rank, least duration or failure; the slowest first."""
        sort = "slowest" if slowest else "newest"
        given = {"name": name, "step": step, "rank": rank, "min_ms": min_ms, "error": _bool_text(error)}
        return self._of_run(run, "/api/spans", sort=sort, limit=limit, **given)

    def trace(self, trace_id: str) -> Any:
        """Read a whole trace as a tree, parents first, with each span's own and critical time."""
        with self._asking() as client:
            return client.get("/api/traces/{trace_id}", trace_id=trace_id)

    def logs(
        self,
        run: str = "latest",
        text: str | None = None,
        severity: str | None = None,
        step: int | None = None,
        rank: int | None = None,
        limit: int = 50,
    ) -> Any:
        """Search logs and events by text, least severity (INFO, WARN, ERROR), step or rank; the newest first."""
        return self._of_run(run, "/api/logs", q=text, severity=severity, step=step, rank=rank, limit=limit)

    def alerts(
        self,
        run: str = "latest",
        severity: str | None = None,
        step: int | None = None,
        rank: int | None = None,
        limit: int = 50,
    ) -> Any:
        """List the alerts that a run raised, by least severity, step or rank; the newest first."""
        return self._of_run(run, "/api/alerts", severity=severity, step=step, rank=rank, limit=limit)

    def diff(self, run: str, other: str) -> Any:
        """Compare two runs: settings that differ, last values of metrics that both have, and what each alone has."""
        with self._asking() as client:
            ids = [resolve_run(client, self._home, each) for each in (run, other)]
            abouts = [client.get("/api/runs/{run}", run=id) for id in ids]
            keys = [{row["name"]: row for row in client.get("/api/runs/{run}/keys", run=id)["keys"]} for id in ids]
        return {
            "runs": [{field: about[field] for field in _COMPARED} for about in abouts],
            "config": _differences(*(dict(flatten(about["config"])) for about in abouts)),
            "environment": _differences(*(dict(flatten(about["environment"])) for about in abouts)),
            "metrics": {
                key: [{part: rows[key][part] for part in ("last", "min", "max", "points")} for rows in keys]
                for key in keys[0]
                if key in keys[1]
            },
            "only": [sorted(keys[at].keys() - keys[1 - at].keys()) for at in (0, 1)],
        }

    def sql(self, sql: str, rows: int = 100) -> Any:
        """Run a read-only SELECT in ClickHouse's dialect over the store's tables.

        Tables: runs, writers, series (run, series, key, rank), metrics (series, step, time, attempt, value),
        histograms, spans, open_spans, logs, alerts, lifecycle, totals, traces, ledger. `runs.run` is the number that
        others use; times are ns.
        """
        with self._asking() as client:
            return client.post("/api/sql", {"sql": sql, "rows": min(max(rows, 1), MAX_ROWS)})

    def checkpoints(self, run: str = "latest", best: str | None = None, keys: list[str] | None = None) -> Any:
        """List the checkpoints of a run with metrics at their steps; `best` names the metric that picks the best."""
        return self._of_run(run, "/api/runs/{run}/checkpoints", best=best, key=keys or [])

    def control(self, run: str = "latest") -> Any:
        """Tell what users asked of a program (to stop, to change live settings), and what became of each request."""
        return self._of_run(run, "/api/runs/{run}/control")

    def stop(self, run: str) -> Any:
        """Ask a running program to stop. Nothing is killed: it ends when it is ready, usually after a checkpoint."""
        return self._ask_of_program(run, "/api/runs/{run}/stop")

    def set_live(self, run: str, settings: dict[str, bool | int | float | str]) -> Any:
        """Ask a running program to change settings that it declared as live; `control` lists them."""
        return self._ask_of_program(run, "/api/runs/{run}/live", settings)

    def _ask_of_program(self, run: str, path: str, body: Any = None) -> Any:
        with self._asking() as client:
            return client.change("POST", path, body, run=resolve_run(client, self._home, run))

    def _of_run(self, run: str, path: str, **given: Any) -> Any:
        with self._asking() as client:
            return client.get(path, run=resolve_run(client, self._home, run), **given)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[HubClient]:
        """Open the client for one question: an engine in this process cannot be opened twice."""
        with self._one_at_a_time, open_client(self._home) as client:
            yield client


def _bool_text(given: bool | None) -> str | None:
    """A boolean as the API spells it."""
    return None if given is None else str(given).lower()


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The settings that differ, each with both values; None where one is missing."""
    keys = sorted({*one, *other})
    return {key: [one.get(key), other.get(key)] for key in keys if one.get(key) != other.get(key)}


CONTROLS = ("stop", "set_live")
"""The names of the tools that ask something of a program."""
ALL = tuple(name for name in vars(Questions) if not name.startswith("_") and name not in CONTROLS)
"""The names of all questions."""
