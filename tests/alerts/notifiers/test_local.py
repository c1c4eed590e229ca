"""The notifiers of this machine: the log, a command, and the desktop."""

import json
import logging
import os
import sys
from pathlib import Path

import pytest

from stepscope.alerts.notifiers.command import Command
from stepscope.alerts.notifiers.desktop import Desktop
from stepscope.alerts.notifiers.log import Log
from stepscope.model.errors import ConfigError, Reject, Retry
from stepscope.testing.notifiers import NotifierContract, example

PROGRAM = """
import os, sys
folder = sys.argv[1]
for name, code in (("busy", 75), ("refuse", 1)):
    if os.path.exists(f"{folder}/{name}"):
        os.unlink(f"{folder}/{name}")
        sys.exit(code)
count = len([name for name in os.listdir(folder) if name.endswith(".txt")])
with open(f"{folder}/{count}.txt", "w") as file:
    file.write(" ".join(sys.argv[2:]) or sys.stdin.read())
"""


class Files:
    """A program that writes what it receives to files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "program.py").write_text(PROGRAM)

    @property
    def line(self) -> list[str]:
        """How the program is run."""
        return [sys.executable, "-S", str(self.folder / "program.py"), str(self.folder)]

    def busy(self) -> None:
        """Ask for another try."""
        (self.folder / "busy").touch()

    def refuse(self) -> None:
        """Fail."""
        (self.folder / "refuse").touch()

    def texts(self) -> list[str]:
        """What it received."""
        return [path.read_text() for path in sorted(self.folder.glob("*.txt"))]


@pytest.fixture
def inbox(tmp_path: Path) -> Files:
    """A folder with the program."""
    return Files(tmp_path)


class TestCommand(NotifierContract):
    @pytest.fixture
    def config(self, inbox: Files) -> Command:
        """The program as a notifier."""
        return Command.read({"run": inbox.line}, {})


class TestDesktop(NotifierContract):
    @pytest.fixture
    def config(self, inbox: Files) -> Desktop:
        """A program that takes the arguments of notify-send."""
        script = inbox.folder / "notify-send"
        script.write_text(f'#!/bin/sh\nexec {" ".join(inbox.line)} "$@"\n')
        os.chmod(script, 0o755)
        return Desktop.read({"program": str(script)}, {})


class Lines:
    """What was logged."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def texts(self) -> list[str]:
        """The messages, with their level."""
        return [f"{each.levelname} {each.getMessage()}" for each in self._caplog.records]


class TestLog(NotifierContract):
    can_be_busy = can_refuse = False

    @pytest.fixture
    def inbox(self, caplog: pytest.LogCaptureFixture) -> Lines:
        """What logging got."""
        caplog.set_level(logging.INFO)
        return Lines(caplog)

    @pytest.fixture
    def config(self) -> Log:
        """The log."""
        return Log.read({}, {})


def test_a_command_gets_json(inbox: Files) -> None:
    """The program reads the whole notification from its standard input."""
    Command.read({"run": inbox.line}, {}).open().send(example(count=2))
    said = json.loads(inbox.texts()[0])
    assert (said["status"], len(said["alerts"]), said["alerts"][0]["value"]) == ("firing", 2, "NaN")


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    """A program that does not end in time is killed with what it started."""
    hangs = Command.read({"run": ["sh", "-c", "sleep 600 & wait"], "timeout": 0.3}, {})
    with pytest.raises(Retry, match="did not exit"):
        hangs.open().send(example())


def test_what_is_not_installed_is_said() -> None:
    """A program that is not there is refused by name, and an empty line is a wrong option."""
    with pytest.raises(Reject, match="no-such-program"):
        Command.read({"run": ["no-such-program"]}, {}).open().send(example())
    with pytest.raises(Reject, match="is not installed"):
        Desktop.read({"program": "no-such-notify"}, {}).open().send(example())
    with pytest.raises(ConfigError, match="the program, then its arguments"):
        Command.read({"run": []}, {})
