"""Runs managed on the page: renamed, tagged, annotated, archived and deleted, each said and most undone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.conftest import PACKAGE, RunningHub
from tests.web.conftest import Opened, until, wait_for

_SCRIPT = """
import stepscope, sys
for run, tags in (("first", ["sweep", "team=red"]), ("second", ["team=blue"]), ("third", [])):
    with stepscope.init("p", f"name of {run}", home=sys.argv[1], run_id=run, probes=False, tags=tags) as made:
        for step in range(30):
            made.log({"loss": 1 / (step + 1)}, step=step)
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub with three runs that have ended."""
    home = tmp_path / "home"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_"))}
    line = [sys.executable, "-c", _SCRIPT, str(home)]
    subprocess.run(line, env={**kept, "PYTHONPATH": str(PACKAGE)}, check=True, timeout=300)
    running = RunningHub(home).start()
    wait_for(lambda: [run["status"] for run in running.request("GET", "/api/runs").json()["runs"]] == ["finished"] * 3)
    yield running
    running.kill()


def told(hub: RunningHub, run: str = "first") -> dict[str, Any]:
    """A run as the hub tells it."""
    found: dict[str, Any] = hub.request("GET", f"/api/runs/{run}").json()
    return found


def test_a_run_is_described_on_its_page(hub: RunningHub, show: Opened) -> None:
    """A name, tags and notes are changed where they stand, kept by the hub, and undone."""
    page = show(hub, "run/first")
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Name of the run").fill("another")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="another").wait_for()
    assert told(hub)["name"] == "another"
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="name of first").wait_for()
    page.get_by_role("button", name="tag", exact=True).click()
    page.get_by_label("New tags").fill("keep, seed=3")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="seed=3").wait_for()
    page.get_by_role("button", name="Remove the tag sweep").click()
    page.get_by_text("Removed the tag sweep.").wait_for()
    assert told(hub)["tags"] == {"team": "red", "keep": True, "seed": "3"}
    page.get_by_role("button", name="Add notes").click()
    page.get_by_label("Notes").fill("two\nlines")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Notes saved.").wait_for()
    assert told(hub)["notes"] == "two\nlines"
    page.get_by_role("button", name="Overview").click()
    page.get_by_role("row", name="renamed to “another”").wait_for()
    page.get_by_role("link", name="team=red").click()
    until(page, "document.querySelectorAll('.vt-row').length === 1")


def test_archived_runs_leave_the_table_until_asked_for(hub: RunningHub, show: Opened) -> None:
    """Picked runs are archived together, come back by undo, and are shown when asked for."""
    page = show(hub, "runs")
    until(page, "document.querySelectorAll('.vt-row').length === 3")
    for name in ("first", "second"):
        page.get_by_label(f"Select name of {name}").check()
    page.get_by_role("button", name="Manage").click()
    page.get_by_role("button", name="Archive 2 runs", exact=True).click()
    until(page, "document.querySelectorAll('.vt-row').length === 1")
    page.get_by_role("button", name="Undo").click()
    until(page, "document.querySelectorAll('.vt-row').length === 3")
    hub.request("PATCH", "/api/runs/third", b'{"archived": true}')
    page = show(hub, "runs")
    until(page, "document.querySelectorAll('.vt-row').length === 2")
    page.get_by_label("Archived runs").select_option("show")
    until(page, "document.querySelectorAll('.vt-row').length === 3")
    assert page.locator(".vt-row .chip.warn").inner_text() == "archived"


def test_deleting_asks_first_and_reports_the_freed_bytes(hub: RunningHub, show: Opened) -> None:
    """Cancel keeps the run; Delete removes it and says how much that freed."""
    page = show(hub, "run/first")
    for answer in ("Cancel", "Delete"):
        page.get_by_role("button", name="Manage").click()
        page.get_by_role("button", name="Delete…").click()
        page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
    page.get_by_text("freed").wait_for()
    until(page, "document.querySelectorAll('.vt-row').length === 2")
    assert told(hub)["error"]["code"] == "not_found"


def test_tags_complete_in_the_filter(hub: RunningHub, show: Opened) -> None:
    """Names and values of tags are offered where the filter wants a field or a value."""
    page = show(hub, "runs")
    until(page, "document.querySelectorAll('.vt-row').length === 3")
    field = page.get_by_label("Filter runs")
    field.press_sequentially("tag.te")
    page.get_by_role("option", name="tag.team").wait_for()
    field.press_sequentially("am = b")
    page.get_by_role("option", name="blue").click()
    until(page, "document.querySelectorAll('.vt-row').length === 1")
    assert "name of second" in page.locator(".vt-row").inner_text()
    show.forgive("400")
