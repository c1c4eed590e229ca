"""A home in which scripts written for wandb start their runs, and what those recorded."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
import stepscope.compat.wandb as wandb
from stepscope.dialects.wandb.shim import artifacts
from stepscope.dialects.wandb.shim.start import Config
from stepscope.journal import layout
from stepscope.testing import read_run

Read = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of the test's own, no variable of wandb, and nothing said before `init` by an earlier test.

    The last is kept by the module, as by wandb's own: a process has one, and all tests here are one process.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STEPSCOPE_PROBES", "0")
    monkeypatch.delenv("STEPSCOPE_SINKS", raising=False)
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(wandb, "_early", Config())
    monkeypatch.setattr(wandb, "_missed", set())
    monkeypatch.setattr(artifacts, "_logged", {})
    yield tmp_path / "home"
    wandb.finish()
    stepscope.finish()


@pytest.fixture
def read(place: Path) -> Read:
    """The records of a run, the only one unless it is named, of one type."""

    def read_back(kind: type, run: str | None = None) -> list[Any]:
        stepscope.flush(10)
        if run is None:
            (run,) = layout.list_runs(place)
        found = [each for each in read_run(place, run) if isinstance(each, kind)]
        return [each for each in found if getattr(each, "category", None) != "stepscope"]

    return read_back


@pytest.fixture
def ignored() -> Callable[[], set[str]]:
    """What the current run counted as ignored."""

    def names() -> set[str]:
        run = stepscope.current_run()
        assert run is not None
        counts = run.outcomes.snapshot()
        return {name.removeprefix("ignored/wandb/") for name in counts if name.startswith("ignored/wandb/")}

    return names
