"""Training, integrations, compat and the demo use the public surface of a run, and nothing behind it."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope import extend
from stepscope.training.moved_modules import MOVED

SOURCE = Path(stepscope.__file__).parent
ROOMS = ("compat", "demo", "integrations", "training")
PUBLIC = frozenset(
    (
        # recording
        "log", "measure", "step", "span", "event", "alert", "exception", "tag", "untag", "note", "rename",
        # what users ask, and checkpoints
        "stop_requested", "on_stop", "live", "checkpoint", "resumed_from", "artifact", "use",
        # what could not be recorded
        "count", "reject", "warn",
        # optional work
        "affords", "add_overhead", "overhead_budget",
        # the end
        "flush", "finish", "on_finish", "on_position",
        # what it is
        "id", "project", "name", "rank", "config", "status", "home", "mark", "started", "goodput",
        "__enter__", "__exit__",
    )
)  # fmt: skip
"""The attributes of a run that are documented; see docs/recording.md."""


def _is_run(node: ast.expr) -> bool:
    """Tell whether an expression is a run of ours, by its name: `run`, `self._run`, `stepscope.current_run()`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("current_run", "init")
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("run", "_run", "_latest", "begun", "joined", "_began", "_begun", "going")


def _uses(source: str) -> Iterator[tuple[int, str]]:
    """The attributes of runs that a module uses, and where."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and _is_run(node.value):
            yield node.lineno, node.attr


SHIM = {
    "answers",
    "config",
    "disabled",
    "ended",
    "ignore",
    "ignore_other",
    "summary",
    "describe",
    "log_text",
    "__dict__",
}
SHIM |= {"define_metric", "note_change"}
"""Attributes of the run of the wandb shim, which is a class of its own."""


@pytest.mark.parametrize("room", ROOMS)
def test_only_public_attributes_of_a_run_are_used(room: str) -> None:
    """No code uses the private attributes of a run."""
    allowed = PUBLIC | SHIM if room == "compat" else PUBLIC
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: run.{name}"
        for path in sorted((SOURCE / room).rglob("*.py"))
        for line, name in _uses(path.read_text(encoding="utf-8"))
        if name not in allowed
    ]
    assert wrong == []


def test_what_is_behind_it_is_noticed() -> None:
    """The check above finds what it looks for."""
    source = "import stepscope\nrun.outcomes.add(1)\nself._run.recorder\nstepscope.current_run().settings\n"
    assert sorted(name for _, name in _uses(source)) == ["outcomes", "recorder", "settings"]


def test_public_attributes_are_there() -> None:
    """Each public attribute is one of a run, also of one that is disabled, and of what `init` returns."""
    run = stepscope.init(disabled=True)
    assert [name for name in PUBLIC - {"started"} if not hasattr(run, name)] == []


def test_what_integrations_use_is_documented() -> None:
    """Every name of `stepscope.extend`, and every method for integrations, is in the documentation."""
    text = (SOURCE.parents[1] / "docs" / "recording.md").read_text(encoding="utf-8")
    missing = [name for name in extend.__all__ if f"`{name}" not in text]
    methods = ("measure", "count", "reject", "warn", "on_finish", "on_position")
    missing += [name for name in methods if f"`run.{name}(" not in text]
    assert missing == []


NAMES = Path(__file__).with_name("public_names.txt")


def _listed() -> dict[str, set[str]]:
    """The public names by module, as listed."""
    lines = NAMES.read_text(encoding="utf-8").splitlines()
    found: dict[str, set[str]] = {}
    for line in lines:
        module, _, names = line.partition(": ")
        found.setdefault(module, set()).update(names.split())
    return found


def _own(module: str) -> set[str]:
    """The names a module offers: its `__all__`, else what it defines and what it passes on from this package."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__all__"):
        return set(loaded.__all__)
    found = {name: value for name, value in vars(loaded).items() if not name.startswith("_")}
    return {name for name, value in found.items() if str(getattr(value, "__module__", "")).startswith("stepscope")}


@pytest.mark.parametrize("module", _listed())
def test_public_names_stay(module: str) -> None:
    """Each listed name can be imported; one that moves or goes needs a line in the changelog, and in the list."""
    loaded = importlib.import_module(module)
    assert sorted(name for name in _listed()[module] if not hasattr(loaded, name)) == []


@pytest.mark.parametrize("module", ["stepscope", "stepscope.extend", "stepscope.training"])
def test_new_public_names_are_listed(module: str) -> None:
    """What the front modules offer is in the list."""
    assert sorted(_own(module) - _listed()[module] - {"moved_modules"}) == []


@pytest.mark.parametrize("earlier", MOVED)
def test_modules_that_moved_can_be_imported(earlier: str) -> None:
    """An earlier name gives the same objects, and says where they are now."""
    name, present = f"stepscope.training.{earlier}", importlib.import_module(f"stepscope.training.{MOVED[earlier]}")
    names = [each for each in vars(present) if not each.startswith("_")]
    sys.modules.pop(name, None)
    with pytest.warns(DeprecationWarning, match=f"{name} is now {present.__name__}"):
        found = importlib.import_module(name)
    assert names
    assert all(getattr(found, each) is getattr(present, each) for each in names)


def test_a_module_that_never_was_is_not_found() -> None:
    """Other imports fail as they did."""
    with pytest.raises(ModuleNotFoundError, match=re.escape("stepscope.training.bus.nothing")):
        importlib.import_module("stepscope.training.bus.nothing")
