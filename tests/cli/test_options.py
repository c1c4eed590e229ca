"""Which home folder is meant; unknown options are named."""

import argparse
from pathlib import Path

import pytest

from stepscope.cli.main import COMMANDS, main, parser
from stepscope.cli.options import ADVICE, OTHER_WORDS, home_of


def test_home_is_the_option_then_the_variable_then_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same home that a run started here would write to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("STEPSCOPE_HOME", raising=False)
    assert home_of(argparse.Namespace(home=None)) == tmp_path / "user" / ".stepscope"
    monkeypatch.setenv("STEPSCOPE_HOME", str(tmp_path / "set"))
    assert home_of(argparse.Namespace(home=None)) == tmp_path / "set"
    assert home_of(argparse.Namespace(home=Path("given"))) == tmp_path / "given"


def test_a_home_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A home that is a file is an error that says so, and not a folder without runs."""
    file = tmp_path / "home"
    file.write_text("not a folder")
    for command in ("runs", "show", "top"):
        assert main([command, "--home", str(file)]) == 2
        assert f"must be a folder, but {file} is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hub --prot 1", "stepscope hub: error: unknown option --prot; did you mean --port?"),
        ("hub token create --nme=x", "stepscope hub token create: error: unknown option --nme; did you mean --name?"),
        ("store --hoem /x info", "stepscope store: error: unknown option --hoem; did you mean --home?"),
        ("show --jsn", "stepscope show: error: unknown option --jsn; did you mean --json?"),
        ("runs -x", "stepscope runs: error: unknown option -x"),
        ("--json runs", "stepscope: error: option --json belongs after the command: "),
        ("rns --json", "stepscope: error: unknown command 'rns'; did you mean runs?"),
        ("ls", "stepscope: error: unknown command 'ls'; did you mean runs?"),
        ("logs latest", "stepscope: error: unknown command 'logs'; did you mean tail?"),
        ("start", "stepscope: error: unknown command 'start'; did you mean hub?"),
        ("login", "stepscope: error: unknown command 'login'; there is no account"),
        ("help runs", "stepscope: error: unknown command 'help'; stepscope --help lists the commands"),
        ("runs --filter status=failed", "unknown option --filter; a filter needs no option: stepscope runs 'status ="),
        ("hub token creat --name x", "unknown command 'creat'; did you mean create?"),
    ],
)
def test_an_unknown_option_is_named(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is about the word that is wrong, never about the value after it."""
    with pytest.raises(SystemExit):
        main(line.split())
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_an_unknown_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown options are reported before missing subcommands and arguments."""
    with pytest.raises(SystemExit):
        main([command, "--nothing-like-it", "1"])
    assert "unknown option --nothing-like-it" in capsys.readouterr().err


def test_what_only_looks_like_an_option_is_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A negative number, a text with spaces, what follows `--`, an abbreviation and a joined value are taken."""
    for line in (["step", "R", "-3"], ["note", "R", "- a remark"], ["note", "R", "--", "-x"], ["runs", "-n5"]):
        place = 1 if "--" in line else len(line)
        main([*line[:place], "--hom", str(tmp_path / "none"), *line[place:]])
    assert "unknown option" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("shwo", "stepscope: error: unknown command 'shwo'; did you mean show?"),
        ("finding latest", "stepscope: error: unknown command 'finding'; did you mean findings?"),
        ("zzz", "stepscope: error: unknown command 'zzz'; choose from demo, hub, open, runs, show"),
        ("store chek", "stepscope store: error: unknown command 'chek'; did you mean check?"),
    ],
)
def test_a_typo_in_a_command_is_named(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command is answered with the nearest known one, or all of them."""
    with pytest.raises(SystemExit) as stopped:
        main(given.split())
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "findings", "tail", "top", "report", "open", "share"])
def test_the_latest_run_is_the_default(command: str) -> None:
    """A command about a run is about the latest one unless another is named."""
    more = ["-o", "x.html"] if command == "report" else []
    assert parser([command]).parse_args([command, *more]).run in ("latest", ["latest"])
    assert parser([command]).parse_args([command, "r1", *more]).run in ("r1", ["r1"])


def test_other_words_lead_to_commands_that_exist() -> None:
    """Each command that is proposed for another tool's word exists, and no such word is a command itself."""
    commands = {name for each in parser()._actions if isinstance(each.choices, dict) for name in each.choices}
    assert set(OTHER_WORDS) <= commands
    words = [word for each in OTHER_WORDS.values() for word in each]
    assert len(words) == len(set(words))
    assert not commands & {*words, *ADVICE}
