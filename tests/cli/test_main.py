"""The command as a program: exit codes, broken pipes, poor terminals, wrong settings."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.main import COMMANDS, main, parser
from tests.cli.journals import log, metric, write


def run(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        check=False,
    )


def test_python_runs_the_package() -> None:
    """`python -m stepscope` is the command, where no script is on the PATH."""
    line = [sys.executable, "-m", "stepscope", "--version"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "stepscope")


def test_only_the_command_that_is_named_is_imported() -> None:
    """`stepscope ship` imports no other command; every command can be named."""
    code = "import sys; from stepscope.cli.main import main; main(['ship', '--home', sys.argv[1]]); print(*sys.modules)"
    line = [sys.executable, "-c", code, os.devnull]
    found = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    assert {each for each in set(COMMANDS.values()) if f"stepscope.cli.{each}" in found} == {"ship"}
    (every,) = [each for each in parser()._actions if isinstance(each, argparse._SubParsersAction)]
    assert set(every.choices) == set(COMMANDS)
    for name in COMMANDS:
        (one,) = [each for each in parser([name])._actions if isinstance(each, argparse._SubParsersAction)]
        assert name in one.choices


def test_a_broken_pipe_is_quiet(tmp_path: Path) -> None:
    """`stepscope tail R | head -1` says nothing about the pipe."""
    write(tmp_path, "R", [metric(n, loss=1.0) for n in range(20_000)])
    line = f"{sys.executable} -m stepscope tail R -n 20000 --home {tmp_path} | head -1"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """Output that cannot be written gives one line."""
    write(tmp_path, "R", [metric(n, loss=1.0) for n in range(20_000)])
    line = f"{sys.executable} -m stepscope tail R -n 20000 --home {tmp_path} > /dev/full"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert (done.returncode, done.stderr) == (2, "stepscope: No space left on device\n")


@pytest.mark.parametrize(
    "line",
    ["runs -n 0", "tail R -n -1", "report R -o x.html --points 1", "step R 5 --rank -1", "step R 99999999999999999999",
     "hub --journal-bytes 5", "hub --max-bytes 0", "hub --allow-origin foo", "hub token create --rate -1"],
)  # fmt: skip
def test_numbers_that_make_no_sense(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is refused before anything is done, with what would be right."""
    with pytest.raises(SystemExit) as raised:
        main(line.split())
    assert raised.value.code == 2
    assert re.search("must be an integer of|at least|use https|above 0", capsys.readouterr().err)


def test_a_terminal_without_unicode_gets_question_marks(tmp_path: Path) -> None:
    """No output is worth a UnicodeEncodeError."""
    write(tmp_path, "R", [log("naïve 損失"), *(metric(n, loss=float(n)) for n in range(9))])
    for command in (("show", "R"), ("tail", "R"), ("runs",)):
        done = run(*command, "--home", str(tmp_path), PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")


def test_wrong_use_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command is answered with the known ones."""
    with pytest.raises(SystemExit) as raised:
        main(["sow"])
    assert raised.value.code == 2
    assert "show" in capsys.readouterr().err


def test_wrong_settings_exit_2_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting that would stop a run stops the command with the same words."""
    monkeypatch.setenv("STEPSCOPE_CONFIG", str(tmp_path / "missing.yaml"))
    assert main(["runs"]) == 2
    assert "STEPSCOPE_CONFIG" in capsys.readouterr().err
    assert main(["runs", "--home", str(tmp_path)]) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is printed."""
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out.startswith("stepscope 0.")


def command_names() -> list[str]:
    """The names of all commands, in the order of `stepscope --help`."""
    actions = parser()._actions
    return [name for action in actions if isinstance(action, argparse._SubParsersAction) for name in action.choices]


LIST_NOTHING = {"completion", "hub", "ui", "mcp", "ship"}


def test_every_command_has_help_and_home_and_every_listing_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The options that commands share are on all of them that can use them."""
    for name in command_names():
        with pytest.raises(SystemExit):
            parser().parse_args([name, "--help"])
        out = capsys.readouterr().out
        assert "--json" in out or name in LIST_NOTHING
        assert "--home" in out


def test_a_typo_is_answered_without_importing_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest command is named; a name like none lists all of them."""
    for typo, words in (
        ("rns", "did you mean runs"),
        ("fndings", "did you mean findings"),
        ("xyzzy", "choose from demo"),
    ):
        with pytest.raises(SystemExit):
            main([typo])
        assert words in capsys.readouterr().err


def test_alone_it_says_what_to_do_next_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty home gets the first lines of code, one with runs the commands for the latest of them."""
    monkeypatch.setenv("STEPSCOPE_HOME", str(tmp_path))
    assert main([]) == 0
    empty = capsys.readouterr().out
    assert f"No runs in {tmp_path} yet." in empty
    assert "stepscope.init(" in empty
    assert "stepscope demo" in empty
    write(tmp_path, "R1", [metric(1, loss=1.0)], name="base")
    assert main([]) == 0
    some = capsys.readouterr().out
    assert f"1 run in {tmp_path}; the latest is base (R1)" in some
    assert "stepscope findings" in some
    assert "stepscope hub" in some
    shown = re.findall(r"^  stepscope ([a-z]+)", empty + some, re.MULTILINE)
    assert set(shown) <= set(COMMANDS)
