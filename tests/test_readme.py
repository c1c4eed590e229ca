"""What the documents say is true: snippets run, commands and settings are there."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.main import parser
from stepscope.journal import layout

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])


def snippets(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_readme_snippet_runs(tmp_path: Path) -> None:
    """The first thing a newcomer pastes works, and leaves a run behind."""
    (code,) = snippets(ROOT / "README.md")
    environment = {"STEPSCOPE_HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(layout.list_runs(tmp_path)) == 1


def commands() -> list[str]:
    """Every command of the command line."""
    actions = parser()._actions
    return [name for action in actions if isinstance(action, argparse._SubParsersAction) for name in action.choices]


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented(command: str) -> None:
    """Each command stands in the README or in a page of docs."""
    assert any(f"stepscope {command}" in page.read_text() for page in PAGES)


def test_every_documented_command_exists() -> None:
    """No page shows a command that is not there."""
    known = set(commands())
    for page in PAGES:
        shown = set(re.findall(r"^\$ stepscope ([a-z]+)", page.read_text(), re.MULTILINE))
        assert shown <= known, page
