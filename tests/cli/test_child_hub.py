"""The hub that a command starts for itself, and its progress line."""

import io
import socket
from pathlib import Path

import pytest

from stepscope.cli.child_hub import HubFailed, _free, serving
from stepscope.cli.progress import PLAIN_SECONDS, plain
from stepscope.hub.home import address_of


def test_a_port_in_use_is_left_alone() -> None:
    """A free port is used; 0 means that another one must be chosen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert _free(port) == 0
    assert _free(port) == port


def test_a_hub_that_runs_is_used_and_one_that_was_started_is_stopped(tmp_path: Path) -> None:
    """The second asks the first, and says so; afterwards the folder is free."""
    pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")
    home, said = tmp_path / "home", list[str]()
    with serving(home, lambda line: None) as address:
        with serving(home, said.append) as same:
            assert same == address == address_of(home)
        assert address_of(home) == address
    assert "using the hub that already has" in said[0]
    assert address_of(home) is None


def test_a_hub_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The command prints the hub's own error message."""
    pytest.importorskip("uvicorn", reason="the hub needs uvicorn")
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(HubFailed, match="is not a Stepscope home"), serving(tmp_path, lambda line: None):
        pass


def test_progress_without_a_terminal_is_a_line_now_and_then() -> None:
    """Progress lines are rate-limited, and the last one is always printed."""
    now = 0.0
    out = io.StringIO()
    show = plain(out, lambda: now)
    for done in range(1, 101):
        show("training", done, 100, f"loss {done}")
        now += PLAIN_SECONDS / 10
    lines = out.getvalue().splitlines()
    assert lines[0] == "training 1/100  loss 1"
    assert lines[-1] == "training 100/100  loss 100"
    assert 10 <= len(lines) <= 12
