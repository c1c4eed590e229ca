"""Which home folder is meant."""

import argparse
from pathlib import Path

import pytest

from stepscope.cli.options import home_of


def test_home_is_the_option_then_the_variable_then_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same home that a run started here would write to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("STEPSCOPE_HOME", raising=False)
    assert home_of(argparse.Namespace(home=None)) == tmp_path / "user" / ".stepscope"
    monkeypatch.setenv("STEPSCOPE_HOME", str(tmp_path / "set"))
    assert home_of(argparse.Namespace(home=None)) == tmp_path / "set"
    assert home_of(argparse.Namespace(home=Path("given"))) == tmp_path / "given"
