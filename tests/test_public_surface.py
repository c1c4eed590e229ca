"""Training, integrations, compat and the demo use the public surface of a run, and nothing behind it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from stepscope import extend

SOURCE = Path(stepscope.__file__).parent
ROOMS = ("compat", "demo", "integrations", "training")
PUBLIC = frozenset(
    (
        # recording
        "log", "measure", "step", "span", "event", "alert", "exception", "tag", "untag", "note", "rename",
        # what could not be recorded
        "count", "reject", "warn",
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
