"""Logs in the browser: the live tail, holding it, filters, and the ways to step and span."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Log
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import until
from tests.web.looks import look_in_both_themes
from tests.web.views.conftest import World
from tests.web.views.recorded import FAILED, RUN, trace_of


def lines(run: str, seq: int, texts: list[str], severity: int = 9, apart: int = 1) -> list[Batch]:
    """A batch of log lines, so many nanoseconds apart."""
    now = time.time_ns()
    writer = Writer(id="tail", run=run, project="tail", wall_ns=now)
    records = [
        Log(now + at * apart, None, None, None, None, severity, text, {"n": at}) for at, text in enumerate(texts)
    ]
    return [Batch(writer, seq, list(records))]


def test_the_tail_is_live(world: World, show: Any) -> None:
    """Lines that come appear at the end, without a refetch and in order, and the newest stays in sight."""
    world.send(lines("tail-1", 1, ["before the page"]))
    page = show(world.hub, "logs?run=tail-1")
    page.get_by_text("before the page").wait_for()
    page.locator(".log-state.open").wait_for()
    for turn in range(3):
        world.send(lines("tail-1", 2 + turn, [f"live {turn} {at}" for at in range(60)]))
        page.get_by_text(f"live {turn} 59", exact=True).wait_for()
    until(page, "document.querySelector('.table-foot').innerText.includes('181 lines')")
    assert page.locator(".log-line").count() < 120


def test_a_held_tail_catches_up(world: World, show: Any) -> None:
    """While held nothing moves; on resuming nothing is missing."""
    world.send(lines("tail-2", 1, ["first"]))
    page = show(world.hub, "logs?run=tail-2")
    page.get_by_text("first", exact=True).wait_for()
    page.locator(".log-state.open").wait_for()
    page.get_by_role("button", name="Pause").click()
    world.send(lines("tail-2", 2, ["second", "third"]))
    wait_until(lambda: world.ask("/api/logs?run=tail-2&limit=10")["logs"][0]["body"] == "third")
    assert page.locator(".log-line").count() == 1
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("third", exact=True).wait_for()
    assert page.locator(".log-line").count() == 3


def test_alerts_can_be_read(world: World, show: Any) -> None:
    """Alerts, also those outside of a step, are a kind of their own, live and stored."""
    now = time.time_ns()
    writer = Writer(id="w", run="alerts-1", project="tail", wall_ns=now)

    def alert(at: int, text: str) -> Batch:
        return Batch(writer, at, [Alert(now + at, None, None, None, None, 21, "disk", text, {})])

    world.send([*lines("alerts-1", 1, ["a line"]), alert(1, "the disk is full")])
    page = show(world.hub, "logs?run=alerts-1")
    page.get_by_text("a line").wait_for()
    page.locator(".log-state.open").wait_for()
    page.get_by_label("Kind").select_option(label="alerts")
    page.locator(".log-text", has_text="the disk is full").wait_for()
    world.send([alert(2, "and still is")])
    page.get_by_text("and still is").wait_for()
    assert page.locator(".log-line").count() == 2


def test_all_runs_are_tailed_too(world: World, show: Any) -> None:
    """Without a run, new lines of any run appear."""
    page = show(world.hub, "logs")
    page.locator(".log-line").first.wait_for()
    page.locator(".log-state.open").wait_for()
    world.send(lines("tail-3", 1, ["from elsewhere"]))
    page.get_by_text("from elsewhere").wait_for()


def test_reading_is_not_disturbed(world: World, show: Any) -> None:
    """Scrolled up, the lines in sight stay where they are while others come, and their number is shown."""
    world.send(lines("tail-4", 1, [f"old {at}" for at in range(300)]))
    page = show(world.hub, "logs?run=tail-4")
    page.get_by_text("old 299").wait_for()
    page.locator(".log-state.open").wait_for()
    box = page.locator(".log-list")
    box.hover()
    page.mouse.wheel(0, -2500)
    page.locator(".log-follow").wait_for()
    before = box.evaluate("(body) => body.scrollTop")
    world.send(lines("tail-4", 2, [f"new {at}" for at in range(7)]))
    page.get_by_role("button", name="7 new").wait_for()
    assert box.evaluate("(body) => body.scrollTop") == before
    page.get_by_role("button", name="7 new").click()
    page.get_by_text("new 6").wait_for()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[World]:
    """A hub that a test may stop."""
    hub = RunningHub(tmp_path / "home").start()
    yield World(hub, "")
    hub.kill()


@pytest.mark.parametrize("many", [30, 3000])
def test_nothing_is_missing_after_the_hub_was_away(own: World, show: Any, many: int) -> None:
    """Lines that came while the page could not hear are read when it is back, all of them, each once and in order.

    In the log of a run, and in that of all runs.
    """
    own.send(lines("hole", 1, [f"before {at}" for at in range(5)]))
    pages = [show(own.hub, view) for view in ("logs?run=hole", "logs")]
    for page in pages:
        page.get_by_text("before 4", exact=True).wait_for()
        page.locator(".log-state.open").wait_for()
    own.hub.stop()
    for page in pages:
        page.locator(".log-state.lost").wait_for()
        page.context.set_offline(True)  # so that the page is back only after the lines are stored
    own.hub.start()
    own.send(lines("hole", 2, [f"away {at}" for at in range(many)], apart=1700))
    wait_until(lambda: own.ask("/api/logs?run=hole&limit=1")["logs"][0]["body"] == f"away {many - 1}")
    for page in pages:
        page.context.set_offline(False)
        page.locator(".log-state.open").wait_for()
    own.send(lines("hole", 3, ["after"]))
    for page in pages:
        page.get_by_text("after", exact=True).wait_for()
        until(page, f"document.querySelector('.table-foot').innerText.startsWith('{many + 6:,} lines')")
        until(page, "!document.querySelector('.table-foot').innerText.includes('missing')")
        assert page.locator(".log-line").last.inner_text().endswith("after")
    show.forgive("net::ERR")


def test_filters(world: World, show: Any) -> None:
    """Severity, text and attributes leave only what fits."""
    page = show(world.hub, f"logs?run={RUN}")
    page.locator(".log-line").first.wait_for()
    page.get_by_label("Severity").select_option("ERROR")
    until(page, "document.querySelectorAll('.log-line').length === 1")
    page.get_by_label("Severity").select_option("")
    page.get_by_label("Text").fill("OUT of memory")
    until(page, "document.querySelectorAll('.log-line').length === 1")
    page.get_by_label("Text").fill("")
    adder = page.get_by_label("Attribute")
    adder.fill("device=cuda:1")
    adder.press("Enter")
    until(page, "document.querySelector('.table-foot').innerText.includes('121 lines')")
    page.goto(f"{world.hub.url}/#/logs?run={RUN}&q=nobody+wrote+this")
    page.get_by_text("No lines match").wait_for()


def test_a_line_leads_to_its_step_and_span(world: World, show: Any) -> None:
    """A chosen line tells all it has, with ways to the step and to the span."""
    page = show(world.hub, f"logs?run={RUN}&severity=ERROR")
    page.locator(".log-line").click()
    drawer = page.get_by_role("dialog")
    drawer.get_by_text("cuda:1").wait_for()
    look_in_both_themes(page, "a line of the log")
    assert drawer.get_by_role("link", name=f"Step {FAILED}").get_attribute("href") == f"#/run/{RUN}?step={FAILED}&at=1"
    drawer.get_by_role("link", name="Span", exact=True).click()
    page.locator(".trace-details h2").wait_for()
    assert page.locator(".trace-details h2").inner_text() == "forward_backward"
    assert trace_of(FAILED).hex() in page.url


def test_a_row_is_one_line(world: World, show: Any) -> None:
    """Line breaks in a text or an attribute do not spill over the rows around it; the details have them."""
    now = time.time_ns()
    writer = Writer(id="w", run="breaks-1", project="tail", wall_ns=now)
    note = "one\n\n```chart\nloss\n```\n"
    event = Event(now, None, None, None, None, 9, "train.run.edited", {"notes": note})
    world.send([Batch(writer, 1, [event, Log(now + 1, None, None, None, None, 9, "a\nb", {})])])
    page = show(world.hub, "logs?run=breaks-1")
    until(page, "document.querySelectorAll('.log-line').length === 2")
    heights = page.evaluate("[...document.querySelectorAll('.log-text')].map((each) => each.scrollHeight)")
    assert max(heights) <= page.evaluate("document.querySelector('.log-line').clientHeight")
    page.locator(".log-line").first.click()
    page.get_by_role("dialog").wait_for()
    assert page.locator(".log-list").bounding_box()["height"] > 100


def test_keyboard(world: World, show: Any) -> None:
    """Arrow keys choose lines, Escape closes what they opened."""
    page = show(world.hub, f"logs?run={RUN}")
    page.locator(".log-line").first.wait_for()
    page.locator(".log-list").focus()
    page.keyboard.press("ArrowUp")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
