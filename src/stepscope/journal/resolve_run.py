"""Resolve a run by its id, a prefix of the id, its name, or `latest`."""

import difflib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from stepscope.journal import layout
from stepscope.journal.run_edits import Edits
from stepscope.journal.segments import find_writer
from stepscope.model.errors import StepscopeError
from stepscope.model.run_description import Description, apply

LATEST = "latest"
PROBES = "stepscope-doctor"
"""The run of all probes, which `latest` skips."""
NEAREST = 5


class UnknownRun(StepscopeError):
    """No run, or more than one, matches."""


def runs_by_age(home: Path) -> list[str]:
    """Return the run ids, the one with the newest writer first."""
    times = run_times(home)
    return sorted(times, key=lambda run: (times[run], run), reverse=True)


def run_times(home: Path) -> dict[str, int]:
    """Return the run ids with the time, in ns, at which the newest writer of each began."""
    folder = layout.runs_folder(home)
    return {run: _changed(folder / run) for run in layout.list_runs(home)}


def _changed(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def find_run(home: Path, text: str) -> str:
    """Find a run among the journals of a home folder; `latest` skips empty runs."""
    runs = runs_by_age(home)
    if text == LATEST:
        runs.sort(key=lambda run: run == PROBES or not layout.list_writers(home, run))
    return choose(text, runs, lambda run: name_of(home, run), str(home))


def choose(text: str, runs: list[str], naming: Callable[[str], str | None], where: str) -> str:
    """Find the run that matches a text among some, latest first; names are read only if needed."""
    if not runs:
        raise UnknownRun(f"there are no runs in {where}")
    if text in runs:
        return text
    if text == LATEST:
        return runs[0]
    beginning = [run for run in runs if run.startswith(text)] if text else []
    names = {run: naming(run) for run in runs} if len(beginning) != 1 else {}
    matches = beginning or [run for run, name in names.items() if name and name == text]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownRun(f"{text!r} matches {len(matches)} runs:\n{_listed(matches, names)}")
    if difflib.get_close_matches(text.lower(), [LATEST], cutoff=0.8):
        raise UnknownRun(f"no run {text!r} in {where}; did you mean {LATEST}?")
    near = _nearest(text, runs, names)
    said = f"closest matches:\n{_listed(near, names)}" if near else f"the latest are:\n{_listed(runs[:NEAREST], names)}"
    raise UnknownRun(f"no run {text!r} in {where}; {said}")


def _nearest(text: str, runs: list[str], names: dict[str, str | None]) -> list[str]:
    """Return the runs whose id or name is similar to a text."""
    words = {run: run for run in runs} | {name: run for run, name in names.items() if name}
    close = difflib.get_close_matches(text, words, n=NEAREST, cutoff=0.4)
    return list(dict.fromkeys(words[word] for word in close))


def _listed(runs: Iterable[str], names: dict[str, str | None]) -> str:
    chosen = list(runs)
    lines = [f"  {run}  {' '.join((names.get(run) or '').split())}".rstrip() for run in chosen[:NEAREST]]
    return "\n".join(lines + ([f"  and {len(chosen) - NEAREST} more"] if len(chosen) > NEAREST else []))


def name_of(home: Path, run: str) -> str | None:
    """Return the display name of a run: the last edit, else that of the first writer that has one."""
    if given := apply(Description(), Edits(home).of(run)).name:
        return given
    for writer in layout.list_writers(home, run):
        if name := find_writer(layout.writer_folder(home, run, writer)).name:
            return name
    return None
