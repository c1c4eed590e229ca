"""`stepscope mcp`: serve the queries to coding agents over the Model Context Protocol, on standard input and output."""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope import __version__
from stepscope.cli.options import Commands, home_of
from stepscope.cli.plain import dumps
from stepscope.cli.questions import ALL, Questions
from stepscope.model.errors import ConfigError, StepscopeError

_TOLD = (
    "Stepscope records training runs: metrics by step, spans, logs, events, alerts, on every rank. Begin with `runs` "
    "and `findings`; `step` explains one step; `series` shows the course of metrics. Everything is read-only. "
    "NaN and infinities are the strings NaN, Infinity and -Infinity. Times are seconds since 1970 unless named _ms."
)


def add(commands: Commands) -> None:
    """Register the command."""
    text = "serve the queries to coding agents over the Model Context Protocol (stdio)"
    made = commands.add_parser("mcp", help=text, description=text)
    made.add_argument("--home", type=Path, help="the folder of all journals (STEPSCOPE_HOME, ~/.stepscope)")
    made.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Serve until the client closes standard input."""
    server(home_of(args)).run("stdio")
    return 0


def server(home: Path) -> Any:
    """The server with one tool for each question."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise ConfigError(f"mcp 2 or later is needed: pip install 'stepscope[mcp]' ({error})") from None
    made = MCPServer("stepscope", instructions=_TOLD, version=__version__, log_level="ERROR")
    questions = Questions(home)
    for name in ALL:
        question = _plainly(getattr(questions, name), ToolError)
        hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
        made.tool(name, annotations=hints, structured_output=False)(question)
    return made


def _plainly(question: Callable[..., Any], refusal: type[Exception]) -> Callable[..., Any]:
    """The same question, answered with JSON that wastes no room, and refused in our words."""

    @functools.wraps(question)
    def asked(**given: Any) -> str:
        try:
            return dumps(question(**given), indent=None)
        except StepscopeError as error:
            raise refusal(str(error)) from None

    return asked
