"""Runs managed on the page: renamed, tagged, annotated, archived and deleted, each said and most undone."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, turn_to, until
from tests.web.looks import look_in_both_themes

TAGS = {"first": ["sweep", "team=red"], "second": ["team=blue"], "third": []}
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """One hub for all tests of this file."""
    running = RunningHub(tmp_path_factory.mktemp("editing") / "home").start()
    yield running
    running.kill()


@pytest.fixture
def project(hub: RunningHub) -> str:
    """A project of the test with three runs that have ended; their ids begin with its name."""
    name = f"p{next(NUMBERS)}"
    for run, tags in TAGS.items():
        with stepscope.init(
            name, f"name of {run}", home=hub.home, run_id=f"{name}-{run}", probes=False, tags=tags
        ) as made:
            for step in range(30):
                made.log({"loss": 1 / (step + 1)}, step=step)
    path = f"/api/runs?filter=project%20%3D%20{name}"
    wait_until(lambda: [run["status"] for run in hub.request("GET", path).json()["runs"]] == ["finished"] * 3)
    return name


def told(hub: RunningHub, run: str) -> dict[str, Any]:
    """A run as the hub tells it."""
    found: dict[str, Any] = hub.request("GET", f"/api/runs/{run}").json()
    return found


def test_a_run_is_described_on_its_page(hub: RunningHub, project: str, show: Opened) -> None:
    """A name, tags and notes are changed where they stand, kept by the hub, and undone."""
    page = show(hub, f"run/{project}-first")
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Name of the run").fill("another")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="another").wait_for()
    assert told(hub, f"{project}-first")["name"] == "another"
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("heading", name="name of first").wait_for()
    page.get_by_role("button", name="tag", exact=True).click()
    page.get_by_label("New tags").fill("keep, seed=3")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="seed=3").wait_for()
    page.get_by_role("button", name="Remove the tag sweep").click()
    page.get_by_text("Removed the tag sweep.").wait_for()
    assert told(hub, f"{project}-first")["tags"] == {"team": "red", "keep": True, "seed": "3"}
    page.get_by_role("button", name="Add notes").click()
    page.get_by_label("Notes").fill("two\nlines")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Notes saved.").wait_for()
    assert told(hub, f"{project}-first")["notes"] == "two\nlines"
    page.get_by_role("button", name="Overview").click()
    page.get_by_role("row", name="renamed to “another”").wait_for()
    page.get_by_role("link", name="team=red").click()
    until(page, "location.hash.startsWith('#/runs?') && document.querySelector('.vt-row')")
    page.locator(f".vt-row[data-id={project}-first]").wait_for()
    assert page.locator(f".vt-row[data-id={project}-second]").count() == 0


def test_notes_are_left_after_a_question(hub: RunningHub, project: str, show: Opened) -> None:
    """With something written the page asks before the field closes, by keyboard alone; without, it does not."""
    page = show(hub, f"run/{project}-first?tab=overview")
    begin = page.get_by_role("button", name=re.compile("^(Add|Edit) notes$"))
    field = page.get_by_label("Notes", exact=True)
    asked = page.get_by_role("dialog", name="Discard unsaved changes?")
    begin.click()
    field.press("Escape")
    field.wait_for(state="detached")
    begin.click()
    before = field.input_value()
    field.fill("a long thought")
    field.press("Escape")
    asked.wait_for()
    look_in_both_themes(page, "the question before notes are discarded")
    page.keyboard.press("Enter")  # on what has the focus: keep editing
    asked.wait_for(state="detached")
    assert field.input_value() == "a long thought"
    field.press("Escape")
    asked.wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    field.wait_for(state="detached")
    assert (told(hub, f"{project}-first")["notes"] or "") == before


def test_what_could_not_be_saved_stays_in_its_field(hub: RunningHub, project: str, show: Opened) -> None:
    """Without a connection a change is reported as not made, and what was typed is saved once there is one again."""
    page = show(hub, f"run/{project}-second?tab=overview", fresh=True)
    fields = {
        "Rename": ("Name of the run", "another"),
        "tag": ("New tags, NAME or NAME=VALUE", "seed=3"),
        "Add notes": ("Notes", "hours of work"),
    }
    for button, (label, text) in fields.items():
        page.get_by_role("button", name=button, exact=True).click()
        field = page.get_by_label(label, exact=True)
        field.fill(text)
        page.context.set_offline(True)
        field.press("Control+Enter" if label == "Notes" else "Enter")
        page.get_by_text("Not changed").last.wait_for()
        assert field.input_value() == text
        page.context.set_offline(False)
        field.press("Control+Enter" if label == "Notes" else "Enter")
        field.wait_for(state="detached")
    wait_until(lambda: told(hub, f"{project}-second")["notes"] == "hours of work")
    found = told(hub, f"{project}-second")
    assert (found["name"], found["tags"]) == ("another", {"team": "blue", "seed": "3"})
    show.forgive("net::ERR")


def test_notes_are_markdown_with_charts(hub: RunningHub, project: str, show: Opened) -> None:
    """A block `chart` is drawn from the run's points, other text is text: no tag and no script in it is run."""
    hostile = "<img src=x onerror=alert(1)> [click](javascript:alert(1)) <script>alert(2)</script>"
    notes = f"# Idea\n**Lower** rate, see [the paper](https://example.org/p)\n\n- one\n- two\n\n{hostile}\n\n"
    chart = "```chart\nloss\n```"
    page = show(hub, f"run/{project}-third?tab=overview")
    page.get_by_role("button", name="Add notes").click()
    page.get_by_label("Notes").fill(notes + chart)
    page.keyboard.press("Control+Enter")
    page.get_by_text("Notes saved.").wait_for()
    shown = page.locator(".notes .markdown")
    shown.get_by_role("heading", name="Idea").wait_for()
    assert shown.locator("li").all_inner_texts() == ["one", "two"]
    assert shown.locator("strong").inner_text() == "Lower"
    assert shown.get_by_role("link").evaluate_all("all => all.map((each) => each.href)") == ["https://example.org/p"]
    assert hostile in shown.inner_text()
    assert shown.locator("img, script").count() == 0
    until(page, "document.querySelector('.notes-charts canvas')?.width > 0")


def test_archived_runs_leave_the_table_until_asked_for(hub: RunningHub, project: str, show: Opened) -> None:
    """Picked runs are archived together, come back by undo, and are shown when asked for."""
    page = show(hub, f"runs?filter=project+%3D+{project}")
    until(page, "document.querySelectorAll('.vt-row').length === 3")
    for name in ("first", "second"):
        page.get_by_label(f"Select name of {name}").check()
    page.get_by_role("button", name="Manage").click()
    page.get_by_role("button", name="Archive 2 runs", exact=True).click()
    until(page, "document.querySelectorAll('.vt-row').length === 1")
    page.get_by_role("button", name="Undo").click()
    until(page, "document.querySelectorAll('.vt-row').length === 3")
    hub.request("PATCH", f"/api/runs/{project}-third", b'{"archived": true}')
    turn_to(page, f"runs?filter=project+%3D+{project}")
    until(page, "document.querySelectorAll('.vt-row').length === 2")
    page.get_by_label("Archived runs").select_option("show")
    until(page, "document.querySelectorAll('.vt-row').length === 3")
    assert page.locator(".vt-row .chip.warn").inner_text() == "archived"


def test_deleting_asks_first_and_reports_the_freed_bytes(hub: RunningHub, project: str, show: Opened) -> None:
    """Cancel keeps the run; Delete removes it and says how much that freed."""
    page = show(hub, f"run/{project}-first")
    for answer in ("Cancel", "Delete"):
        page.get_by_role("button", name="Manage").click()
        page.get_by_role("button", name="Delete…").click()
        look_in_both_themes(page, "the question before a run is deleted")
        page.get_by_role("dialog").get_by_role("button", name=answer, exact=True).click()
    page.get_by_text("freed").wait_for()
    page.locator(f".vt-row[data-id={project}-second]").wait_for()
    assert page.locator(f".vt-row[data-id={project}-first]").count() == 0
    assert told(hub, f"{project}-first")["error"]["code"] == "not_found"


def test_tags_complete_in_the_filter(hub: RunningHub, project: str, show: Opened) -> None:
    """Names and values of tags are offered where the filter wants a field or a value."""
    page = show(hub, "runs")
    page.locator(f".vt-row[data-id={project}-first]").wait_for()
    field = page.get_by_label("Filter runs")
    field.press_sequentially("tag.te")
    page.get_by_role("option", name="tag.team").wait_for()
    field.press_sequentially("am = b")
    page.locator(f".vt-row[data-id={project}-first]").wait_for(state="detached")
    page.get_by_role("option", name="blue").click()
    page.locator(f".vt-row[data-id={project}-second]").wait_for()
    assert page.locator(f".vt-row[data-id={project}-first]").count() == 0
    assert "name of second" in page.locator(f".vt-row[data-id={project}-second]").inner_text()
    show.forgive("400")
