"""`stepscope completion`: words for the shell, without importing what is not needed."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.completion import SHELLS, TAKE_RUNS
from stepscope.cli.main import COMMANDS, main, parser
from tests.cli.journals import metric, write


def words(capsys: pytest.CaptureFixture[str], *given: str) -> list[str]:
    """The words that the command offers."""
    capsys.readouterr()
    assert main(["completion", "words", "--", *given]) == 0
    return capsys.readouterr().out.splitlines()


def test_commands_options_verbs_and_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What begins as the last word does: commands first, then what belongs to the command."""
    monkeypatch.setenv("STEPSCOPE_HOME", str(tmp_path))
    write(tmp_path, "20261118-1", [metric(1, loss=1.0)], name="base")
    write(tmp_path, "20261118-2", [metric(1, loss=1.0)], name="two words")
    assert set(words(capsys)) >= set(COMMANDS)
    assert words(capsys, "ru") == ["runs"]
    assert words(capsys, "show", "2026") == ["20261118-2", "20261118-1"]
    assert words(capsys, "show", "ba") == ["base"]
    assert words(capsys, "diff", "20261118-1", "") == ["latest", "20261118-2", "20261118-1", "base"]
    assert words(capsys, "runs", "--co") == ["--columns"]
    assert "--scope" in words(capsys, "hub", "token", "create", "--")
    assert words(capsys, "hub", "t") == ["token"]
    assert words(capsys, "completion", "f") == ["fish"]
    assert words(capsys, "show", "--home", "x") == words(capsys, "none", "x") == []
    other = tmp_path / "other"
    write(other, "elsewhere", [metric(1, loss=1.0)])
    assert words(capsys, "show", "--home", str(other), "e") == ["elsewhere"]


def test_the_commands_that_take_runs_are_known() -> None:
    """The list that saves importing them is that of the parsers."""
    (every,) = [each for each in parser()._actions if isinstance(each, argparse._SubParsersAction)]
    positional = {
        name
        for name, command in every.choices.items()
        if any(not action.option_strings and action.dest == "run" for action in command._actions)
    }
    assert positional == TAKE_RUNS


def test_completing_a_run_imports_little(tmp_path: Path) -> None:
    """A key press waits for no hub, no diagnosis and no other command."""
    code = "import sys; from stepscope.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    line = [sys.executable, "-c", code, "completion", "words", "--", "show", "--home", str(tmp_path), ""]
    found = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    heavy = ("stepscope.hub", "stepscope.diagnosis", "stepscope.cli.show", "numpy", "http", "asyncio")
    assert "latest" in found
    assert [name for name in found if name.startswith(heavy)] == []


def test_bash_completes(tmp_path: Path) -> None:
    """The script works in bash: the word being typed is replaced by the run."""
    write(tmp_path, "20261118-1", [metric(1, loss=1.0)])
    program = tmp_path / "bin" / "stepscope"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stepscope "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(stepscope completion bash)"
        COMP_WORDS=(stepscope show 2026); COMP_CWORD=2; _stepscope; echo "${COMPREPLY[@]}"
        COMP_WORDS=(stepscope fin); COMP_CWORD=1; _stepscope; echo "${COMPREPLY[@]}"
        complete -p stepscope
    """
    env = {**os.environ, "STEPSCOPE_HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.splitlines()[:2] == ["20261118-1", "findings"]
    assert "_stepscope" in done.stdout.splitlines()[2]


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_the_scripts_are_valid(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shell that is installed can parse its script."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "stepscope completion words" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=script, text=True, check=True)
