"""What the documents say is true: snippets run, commands and settings are there."""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.main import parser
from stepscope.journal import layout
from stepscope.model.records import Log
from stepscope.testing import read_run
from tools.screenshots import SHOTS

CORE = ("importlib_metadata", "msgspec", "opentelemetry", "stepscope", "typing_extensions", "zipp")
"""What there is with `pip install stepscope`, beside the standard library."""
ALONE = f"""
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        known = first in sys.stdlib_module_names or first in {CORE!r}
        if not known or name in ("opentelemetry.proto", "opentelemetry.sdk"):
            raise ModuleNotFoundError("No module named " + repr(first), name=first)
sys.meta_path.insert(0, Refusing())
import stepscope
run = stepscope.init(probes=False)
for index in range(100):
    run.log({{"loss": 1.0}}, step=index)
run.finish()
from stepscope.cli.main import main
sys.exit(main())
"""
"""A run, then a command, where nothing else is installed."""
ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/how/*.md")])


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
    """Each command is in the README or in a page of docs."""
    assert any(f"stepscope {command}" in page.read_text() for page in PAGES)


def test_every_documented_command_exists() -> None:
    """No page shows a command that is not there."""
    known = set(commands())
    for page in PAGES:
        shown = set(re.findall(r"^\$ stepscope ([a-z]+)", page.read_text(), re.MULTILINE))
        assert shown <= known, page


def shown_at_the_terminal() -> list[tuple[str, str]]:
    """The commands that the README shows for a run, each with what stands behind it."""
    found = re.findall(r"^\$ (stepscope .*?) *# (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(found) > 4
    return found


@pytest.mark.parametrize(("line", "comment"), shown_at_the_terminal())
def test_the_readme_says_what_a_command_needs(line: str, comment: str, tmp_path: Path) -> None:
    """With the core package alone a command works, or the README names the extra it needs."""
    environment = {"STEPSCOPE_HOME": str(tmp_path / "home"), "PATH": "", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", ALONE, *shlex.split(line)[1:]]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    needed = re.findall(r"stepscope\[\w+\]", comment)
    assert re.findall(r"stepscope\[\w+\]", done.stderr) == needed, done.stderr
    assert done.returncode == (2 if needed else 0), done.stdout


def test_the_pages_show_every_picture() -> None:
    """Every picture is used, and the tool takes those that are shown."""
    shown = {name for page in PAGES for name in re.findall(r"\]\((?:docs/)?images/([^)]+)\)", page.read_text())}
    assert {path.name for path in ROOT.glob("docs/images/*")} == shown == {shot.file for shot in SHOTS}


def test_what_goes_through_logging_before_a_level_is_set(tmp_path: Path) -> None:
    """As docs/recording.md has it: a program that configures nothing has its warnings recorded, and no more."""
    code = """if True:
        import logging, stepscope
        run = stepscope.init(run_id="logs", probes=False)
        logging.info("unheard"); logging.warning("heard")
        logging.getLogger().setLevel(logging.INFO)
        logging.info("heard too")
        run.finish()
    """
    environment = {"STEPSCOPE_HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert [each.body for each in read_run(tmp_path, "logs") if isinstance(each, Log)] == ["heard", "heard too"]
