"""`stepscope open`: the address of a run, and the browser only where someone sees it."""

import io
import json

import pytest

from stepscope.cli import open as opening
from stepscope.cli.main import main
from tests.cli.journals import finished, metric, write
from tests.hub.conftest import StartHub, start_hub

__all__ = ["start_hub"]


class Terminal(io.StringIO):
    """Output that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_the_address_is_printed_and_a_browser_opened_on_a_desktop(
    start_hub: StartHub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe and without a display the address is only printed."""
    opened: list[str] = []
    monkeypatch.setattr(opening.webbrowser, "open", opened.append)
    hub = start_hub()
    write(hub.home, "R", [metric(1, loss=1.0), finished()])
    line = ["open", "--home", str(hub.home)]
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(line) == 0
    assert (capsys.readouterr().out, opened) == (f"{hub.url}/#/run/R\n", [])
    monkeypatch.setattr("sys.stdout", Terminal())
    assert main([*line, "R"]) == 0
    assert opened == [f"{hub.url}/#/run/R"]
    assert main([*line, "R", "--print"]) == 0
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert main([*line, "R"]) == 0
    assert len(opened) == 1


def test_json_and_what_is_missing(start_hub: StartHub, capsys: pytest.CaptureFixture[str], tmp_path: str) -> None:
    """Without a hub the command says how to start one; an unknown run has its nearest."""
    hub = start_hub()
    write(hub.home, "R", [metric(1, loss=1.0), finished()])
    assert main(["open", "R", "--json", "--home", str(hub.home)]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": "R", "url": f"{hub.url}/#/run/R"}
    assert main(["open", "X", "--home", str(hub.home)]) == 2
    assert "the latest are" in capsys.readouterr().err
    assert main(["open", "--home", str(tmp_path)]) == 2
    assert f"stepscope hub --home {tmp_path}" in capsys.readouterr().err
