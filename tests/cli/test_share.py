"""`stepscope share`: a link to one run where a hub has tokens, and what to do where it has none."""

import json
import re
from pathlib import Path

import pytest

from stepscope.cli.main import main
from tests.cli.journals import finished, metric, write
from tests.hub.conftest import StartHub, start_hub
from tests.waiting import wait_until

__all__ = ["start_hub"]


def test_a_link_shows_its_run_until_it_is_revoked(
    start_hub: StartHub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of the link reads the run, and no other; links are listed with their end, and revoked."""
    home = tmp_path / "home"
    assert main(["hub", "token", "create", "--home", str(home), "--scope", "admin"]) == 0
    admin = {"authorization": f"Bearer {(own := capsys.readouterr().out.strip())}"}
    monkeypatch.setenv("STEPSCOPE_TOKEN", own)
    for run in ("A", "B"):
        write(home, run, [metric(1, loss=1.0), finished()])
    hub = start_hub(home=home)
    wait_until(lambda: len(hub.request("GET", "/api/runs", None, admin).json()["runs"]) == 2)

    def share(*words: str) -> str:
        assert main(["share", *words, "--home", str(home)]) == 0
        return capsys.readouterr().out

    made = json.loads(share("A", "--for", "2h", "--json"))
    found = re.fullmatch(rf"{hub.url}/#/share/(sst_\w+)/A", made["url"])
    assert found
    headers = {"authorization": f"Bearer {found[1]}"}
    wait_until(lambda: hub.request("GET", "/api/runs/A", None, headers).status == 200)
    assert hub.request("GET", "/api/runs/B", None, headers).status == 403
    assert re.search(rf"{made['id']}  until 20.*  link to A, by token", share("--list"))
    assert "until 20" in share("A")
    project = json.loads(share("--project", "gpt", "--json"))
    assert (project["project"], project["run"]) == ("gpt", None)
    assert "is revoked" in share("--revoke", made["id"])
    wait_until(lambda: hub.request("GET", "/api/runs/A", None, headers).status == 401)
    assert main(["share", "A", "--for", "400d", "--home", str(home)]) == 2
    assert "at most 365 days" in capsys.readouterr().err
    assert main(["share", "--revoke", "none", "--home", str(home)]) == 2
    assert "no link 'none'" in capsys.readouterr().err


def test_a_hub_without_tokens_needs_no_link(start_hub: StartHub, capsys: pytest.CaptureFixture[str]) -> None:
    """A first token would lock everybody out, so the address of the page is named instead."""
    hub = start_hub()
    write(hub.home, "A", [metric(1, loss=1.0), finished()])
    wait_until(lambda: hub.request("GET", "/api/runs/A").status == 200)
    assert main(["share", "A", "--home", str(hub.home)]) == 2
    assert "share the address of the page" in capsys.readouterr().err
    assert hub.request("GET", "/api/runs").status == 200
    assert main(["share", "--home", str(hub.home / "none")]) == 2
