"""`stepscope.show`: the page of a run in a cell, where a hub runs and allows it."""

from pathlib import Path

import pytest

import stepscope
from tests.hub.conftest import StartHub, start_hub
from tests.waiting import wait_until

__all__ = ["start_hub"]


def test_without_a_hub(tmp_path: Path) -> None:
    """A cell says how to start one; unknown runs and tabs are errors in words."""
    with stepscope.init(home=tmp_path, run_id="one", probes=False, otel=False) as run:
        run.log({"loss": 1.0})
        shown = stepscope.show(run)
    assert (shown.url, shown.run) == (None, "one")
    assert f"stepscope hub --home {tmp_path}" in shown._repr_html_()
    assert "no hub" in repr(stepscope.show("latest", home=tmp_path))
    with pytest.raises(stepscope.StepscopeError, match="no run 'nothing'"):
        stepscope.show("nothing", home=tmp_path)
    with pytest.raises(stepscope.StepscopeError, match="there is no tab 'sums'"):
        stepscope.show("one", home=tmp_path, tab="sums")


def test_another_home(tmp_path: Path) -> None:
    """A home that is given is looked into, also while a run of another one is active."""
    with stepscope.init(home=tmp_path / "old", run_id="old", probes=False, otel=False) as run:
        run.log({"loss": 1.0})
    with stepscope.init(home=tmp_path / "new", run_id="new", probes=False, otel=False) as run:
        run.log({"loss": 1.0})
        assert stepscope.show().run == "new"
        assert stepscope.show(home=tmp_path / "old").run == "old"


def test_with_a_hub(start_hub: StartHub, tmp_path: Path) -> None:
    """The cell has a frame with the address of the run, which the allowed origin may show."""
    home = tmp_path / "home"
    hub = start_hub("--allow-origin", "http://localhost:8888", home=home)
    with stepscope.init(home=home, run_id="two", probes=False, otel=False) as run:
        run.log({"loss": 1.0})
        wait_until(lambda: stepscope.show(run).url is not None)
        shown = stepscope.show(run, tab="files", height=300)
    assert shown.url == f"{hub.url}/#/run/two?tab=files"
    assert f"<iframe src='{shown.url}' width='100%' height='300'" in shown._repr_html_()
    policy = hub.request("GET", "/").headers["content-security-policy"]
    assert "frame-ancestors http://localhost:8888;" in policy
