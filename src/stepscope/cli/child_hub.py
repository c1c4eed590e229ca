"""A hub as a child of a command: started on free ports, found by its one line, stopped at the end."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from stepscope.hub.home import address_of
from stepscope.hub.serving import priority
from stepscope.model.dialects import hub_options
from stepscope.model.errors import StepscopeError

HOST, PORT = "127.0.0.1", 4318
STOP_SECONDS = 20.0
_LINE = re.compile(r"stepscope hub: (\S+)")


class HubFailed(StepscopeError):
    """The hub did not start."""


@contextlib.contextmanager
def serving(home: Path, report: Callable[[str], None]) -> Iterator[str]:
    """The address of the hub of a home folder: of a running one, else of one that is started and stopped again."""
    running = address_of(home)
    if running is not None:
        report(f"using the hub that already has {home} open")
        yield running
        return
    port = _free(PORT)
    if port != PORT:
        report(f"port {PORT} is in use: the hub uses a free one")
    from stepscope.demo.launcher import stopping  # with numpy, which only the demo needs

    process = _start(home, port)
    with stopping([process], STOP_SECONDS):
        yield _address(process)


def _free(port: int) -> int:
    """Return the port, or 0 (any) when it is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return 0
    return port


def _start(home: Path, port: int) -> "subprocess.Popen[str]":
    line = [sys.executable, "-m", "stepscope", "hub", "--home", str(home), "--host", HOST]
    for option in hub_options():
        if option.port:
            line += [option.flag, str(_free(option.default))]
    return subprocess.Popen(
        [*line, "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("STEPSCOPE_", "OTEL_")) or key == priority.VARIABLE
        },
        start_new_session=True,  # Ctrl-C at the terminal is for the command, which stops it
    )


def _address(process: "subprocess.Popen[str]") -> str:
    lines = []
    for line in process.stdout or ():
        found = _LINE.match(line)
        if found is not None and found[1].startswith("http"):
            return found[1]
        lines.append(line.strip())
    raise HubFailed(lines[-1].removeprefix("stepscope: ") if lines else "the hub did not start and printed nothing")
