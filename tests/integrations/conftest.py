"""A home for runs that frameworks start by themselves, and what those runs recorded."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.journal import layout
from stepscope.journal.run_edits import Edits
from stepscope.model import names
from stepscope.model.run_requests import Request
from stepscope.testing import read_run
from tests.waiting import wait_until

Read = Callable[..., list[Any]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home in which code that knows nothing of homes starts its runs; the run is over after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STEPSCOPE_PROBES", "0")
    monkeypatch.setenv("STEPSCOPE_CAPTURE_LOGS", "0")
    monkeypatch.delenv("STEPSCOPE_SINKS", raising=False)
    yield tmp_path / "home"
    stepscope.finish()


@pytest.fixture
def read(place: Path) -> Read:
    """The records of the only run, of the given types, without Stepscope's own counters."""

    def read_back(*kinds: type) -> list[Any]:
        stepscope.flush(10)
        (run,) = layout.list_runs(place)
        found = [each for each in read_run(place, run) if not kinds or isinstance(each, kinds)]
        return [each for each in found if getattr(each, "category", None) != "stepscope"]

    return read_back


@pytest.fixture
def ask_to_stop(place: Path) -> Callable[[], None]:
    """Ask the current run to stop, as a user does, and wait until its process has heard it."""

    def ask() -> None:
        run = stepscope.current_run()
        assert run is not None
        assert run.flush(300)
        Edits(place).append(run.id, "ada", request=Request(attempt=1, stop=True))
        wait_until(lambda: run.stop_asked)

    return ask


@pytest.fixture
def status(read: Read) -> Callable[[], str | None]:
    """How the only run ended; None while it goes on."""

    def read_status() -> str | None:
        ends = [each for each in read() if getattr(each, "name", None) == names.EVENT_FINISHED]
        return ends[-1].attrs["status"] if ends else None

    return read_status
