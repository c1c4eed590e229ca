"""Colours: on a terminal that has them, never in a pipe, and never against NO_COLOR."""

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from stepscope.cli import text
from stepscope.cli.main import main
from tests.cli.journals import finished, metric, write


def on_a_terminal(*arguments: str, **env: str) -> str:
    """The output of a command whose standard output is a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))  # as wide as what has no terminal
    full = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", **env}
    process = subprocess.Popen([sys.executable, "-m", "stepscope", *arguments], stdout=theirs, env=full)
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # what reading from a terminal that nobody writes to any more gives
        pass
    os.close(ours)
    assert process.wait() == 0
    return b"".join(parts).decode()


def test_states_are_coloured_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The columns stay aligned; a pipe, NO_COLOR and a dumb terminal get plain text."""
    write(tmp_path, "R", [metric(1, loss=float("nan")), finished("failed")])
    line = ("runs", "--home", str(tmp_path))
    coloured = on_a_terminal(*line, NO_COLOR="")
    assert "\x1b[31mfailed\x1b[0m" in coloured
    assert main(list(line)) == 0
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    assert on_a_terminal(*line, NO_COLOR="1").replace("\r\n", "\n").split() == plain.split()
    assert "\x1b" not in on_a_terminal(*line, TERM="dumb", NO_COLOR="")


def test_findings_and_headings_are_coloured(tmp_path: Path) -> None:
    """The severity of a finding and the headings of a run stand out."""
    write(tmp_path, "R", [metric(n, loss=float("nan") if n > 5 else 1.0) for n in range(9)], [finished("failed")])
    assert "\x1b[31mERROR\x1b[0m" in on_a_terminal("findings", "R", "--home", str(tmp_path), NO_COLOR="")
    assert "\x1b[1mMETRICS\x1b[0m" in on_a_terminal("show", "R", "--home", str(tmp_path), NO_COLOR="")


def test_a_table_keeps_its_columns() -> None:
    """Cells that would be coloured are padded by what is seen of them."""
    lines = text.table(("A", ">B"), [["failed", "!NaN"], ["x", "1.5"]])
    assert lines == ["A          B", "failed  !NaN", "x        1.5"]
