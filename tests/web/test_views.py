"""Saved views of a workspace: kept on the hub by name, opened, renamed, made the default, deleted."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from stepscope.model.names import EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, turn_to, until
from tests.web.looks import SIZES, look_in_both_themes, look_over
from tests.web.stored import hub_with

START = 1_790_000_000 * 10**9
SECOND = 10**9


def _run(number: int) -> Batch:
    start = START + number * 100 * SECOND
    writer = Writer(
        id="w", run=f"r{number}", project="kept", name=f"seed-{number}", wall_ns=start, host="a", world_size=1
    )
    config = {"lr": 0.1 * (1 + number % 2), "seed": number}
    records: list[Record] = [Event(start, None, None, None, None, 9, EVENT_STARTED, {"config": config})]
    for step in range(10):
        values = {"loss": number + 1 / (step + 1), "accuracy": step / 10, "other": 1.0 * step}
        records.append(Metric(start + step * SECOND, step, None, "trainer", values))
    records.append(Event(start + 10 * SECOND, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"}))
    return Batch(writer, 1, records)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with six runs of one project."""
    with hub_with(tmp_path_factory.mktemp("kept") / "home", [_run(number) for number in range(6)]) as hub:
        yield hub


def _stored(hub: RunningHub) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hub.request("GET", "/api/views?project=kept").json()["views"]
    return found


def _clear(hub: RunningHub) -> None:
    for view in _stored(hub):
        assert hub.request("DELETE", f"/api/views/{view['id']}?project=kept").status == 200


def _query(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url.replace("/#/", "/")).query)


def _name(page: Any, text: str, button: str) -> None:
    page.get_by_role("textbox", name="Name of the view").fill(text)
    page.get_by_role("button", name=button, exact=True).click()


def test_what_is_shown_is_saved_and_opened_by_somebody_else(kept: RunningHub, show: Opened) -> None:
    """Filter, groups, columns, pinned charts, smoothing and hidden runs are in the view, and come back with it."""
    _clear(kept)
    page = show(kept, "project/kept?filter=config.seed+%3C+5&group=config.lr&smooth=0.6&hide=r1", fresh=True)
    page.get_by_role("button", name="Pin trainer/accuracy").click()
    page.get_by_role("button", name="Values of each run").click()
    page.get_by_role("checkbox", name="trainer/other").check()
    page.get_by_role("checkbox", name="seed").check()
    page.keyboard.press("Escape")
    until(page, "document.querySelector('.workspace-list .vt-row[data-id=r4]').innerText.includes('seed 4')")
    page.get_by_role("button", name="Views").click()
    _name(page, "My view", "Save view")
    page.get_by_text("Saved as My view.").wait_for()
    page.get_by_role("button", name="My view").wait_for()
    (view,) = _stored(kept)
    assert _query(page)["view"] == [view["id"]]
    query = parse_qs(view["query"])
    assert query["filter"] == ["config.seed < 5"]
    assert (query["group"], query["smooth"], query["hide"]) == (["config.lr"], ["0.6"], ["r1"])
    assert query["pin"] == ["trainer/accuracy"]
    assert query["column"][-1] == "config.seed"
    other = show(kept, "project/kept", fresh=True)
    other.get_by_role("button", name="Views").click()
    other.get_by_role("link", name="My view").click()
    other.get_by_text("4 of 5 visible").wait_for()
    until(other, "document.querySelector('.chart')?.dataset.key === 'trainer/accuracy'")
    assert _query(other) == {**query, "view": [view["id"]]}
    assert other.get_by_role("button", name="My view", exact=True).count() == 1


def test_a_change_is_marked_and_saved_into_the_view(kept: RunningHub, show: Opened) -> None:
    """A dot says that what is shown differs from what is saved; saving takes it away, renaming keeps what it holds."""
    _clear(kept)
    page = show(kept, "project/kept?filter=seed", fresh=True)
    page.get_by_role("button", name="Views").click()
    _name(page, "One", "Save view")
    page.get_by_role("button", name="One", exact=True).wait_for()
    page.get_by_role("button", name="log", exact=True).click()
    page.get_by_role("button", name="One •").click()
    page.get_by_role("button", name="Save changes to One").click()
    page.get_by_text("Saved One.").wait_for()
    page.get_by_role("button", name="One", exact=True).click()
    page.get_by_role("button", name="Rename One").click()
    page.get_by_role("textbox", name="Name of the view").first.fill("Two")
    page.get_by_role("button", name="Rename", exact=True).click()
    page.get_by_text("Renamed to Two.").wait_for()
    (view,) = _stored(kept)
    assert (view["name"], parse_qs(view["query"])["log"]) == ("Two", ["1"])


def test_a_project_opens_with_its_default_view(kept: RunningHub, show: Opened) -> None:
    """The star makes a view the default; without a view the project opens as it is, and a deleted view is gone."""
    _clear(kept)
    page = show(kept, "project/kept?filter=config.seed+%3C+3", fresh=True)
    page.get_by_role("button", name="Views").click()
    _name(page, "Few", "Save view")
    page.get_by_role("button", name="Few", exact=True).click()
    page.get_by_role("button", name="Open the project with Few").click()
    page.get_by_text("The project opens with Few.").wait_for()
    turn_to(page, "project/kept")
    page.get_by_text("3 of 3 visible").wait_for()
    page.get_by_role("button", name="Few", exact=True).click()
    page.get_by_role("link", name="Without a view").click()
    page.get_by_text("6 of 6 visible").wait_for()
    page.get_by_role("button", name="Views", exact=True).click()
    page.get_by_role("button", name="Delete Few").click()
    look_in_both_themes(page, "the question before a view is deleted")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").wait_for(state="hidden")
    assert _stored(kept) == []
    turn_to(page, "project/kept")
    page.get_by_text("6 of 6 visible").wait_for()


PINNED = ["trainer/loss", "trainer/accuracy", "trainer/other"]
ORDER = "[...document.querySelectorAll('[aria-label=pinned] .chart')].map((each) => each.dataset.key).join()"


def _is_in_order(page: Any, *names: str) -> None:
    until(page, f"{ORDER} === '{','.join(f'trainer/{name}' for name in names)}'")


def _middle(page: Any, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def _chart(name: str) -> str:
    return f"[aria-label=pinned] .chart[data-key='trainer/{name}']"


def test_pinned_charts_are_put_in_order(kept: RunningHub, show: Opened) -> None:
    """By dragging with the mouse or a finger, by arrow keys and from a menu; the view keeps the order."""
    _clear(kept)
    pins = "&".join(f"pin={name.replace('/', '%2F')}" for name in PINNED)
    page = show(kept, f"project/kept?{pins}", fresh=True, width=1440)
    _is_in_order(page, "loss", "accuracy", "other")
    page.mouse.move(*_middle(page, f"{_chart('loss')} .grip button"))
    page.mouse.down()
    x, y = _middle(page, _chart("accuracy"))
    page.mouse.move(x + 40, y, steps=4)
    until(page, f"document.querySelector(`{_chart('accuracy')}`).dataset.drop === 'after'")
    page.keyboard.press("Escape")
    until(page, "document.querySelector('[data-drop], [data-dragged]') === null")
    page.mouse.up()
    _is_in_order(page, "loss", "accuracy", "other")
    page.keyboard.press("Escape")
    page.mouse.move(*_middle(page, f"{_chart('loss')} .grip button"))
    page.mouse.down()
    page.mouse.move(x + 40, y, steps=4)
    page.mouse.up()
    _is_in_order(page, "accuracy", "loss", "other")
    assert page.locator("[aria-label=pinned] .menu").count() == 0
    grip = page.locator(f"{_chart('loss')} .grip button")
    grip.focus()
    page.keyboard.press("ArrowRight")
    _is_in_order(page, "accuracy", "other", "loss")
    page.get_by_text("trainer/loss: place 3 of 3").wait_for()
    until(page, "document.activeElement.closest('.chart')?.dataset.key === 'trainer/loss'")
    page.keyboard.press("Home")
    _is_in_order(page, "loss", "accuracy", "other")
    page.locator(f"{_chart('other')} .grip button").click()
    page.get_by_role("button", name="Earlier", exact=True).click()
    _is_in_order(page, "loss", "other", "accuracy")
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    x, y = _middle(page, _chart("loss"))
    places = [_middle(page, f"{_chart('accuracy')} .grip button"), (x - 40, y)]
    for kind, (x, y) in zip(("touchStart", "touchMove"), places, strict=True):
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    _is_in_order(page, "accuracy", "loss", "other")
    page.get_by_role("button", name="Views").click()
    _name(page, "Ordered", "Save view")
    page.get_by_text("Saved as Ordered.").wait_for()
    (view,) = _stored(kept)
    assert parse_qs(view["query"])["pin"] == ["trainer/accuracy", "trainer/loss", "trainer/other"]
    other = show(kept, "project/kept", fresh=True)
    other.get_by_role("button", name="Views").click()
    other.get_by_role("link", name="Ordered").click()
    _is_in_order(other, "accuracy", "loss", "other")


def test_a_run_has_charts_of_expressions(kept: RunningHub, show: Opened) -> None:
    """An expression is drawn in the run's own charts, along its x and zoom, and opens the step."""
    page = show(kept, "run/r3?tab=charts", fresh=True)
    page.get_by_role("button", name="Expression", exact=True).click()
    field = page.get_by_label("Expression of metrics")
    field.fill("{trainer/loss} * (1 -")
    field.press("Enter")
    page.get_by_role("alert").wait_for()
    field.fill("{trainer/loss} - {trainer/accuracy}")
    field.press("Enter")
    chart = '.chart[data-key="{trainer/loss} - {trainer/accuracy}"]'
    until(page, f"document.querySelector('{chart} .chart-plot')?.dataset.drawn === '10'")
    until(page, "location.hash.includes('expr=')")
    page.keyboard.press("Escape")
    turn_to(page, "run/r3?tab=charts&x=relative&from=2&to=5")
    until(page, f"document.querySelector('{chart} .chart-plot')?.dataset.drawn === '4'")
    turn_to(page, "run/r4?tab=charts")  # of the same project
    until(page, f"document.querySelector('{chart} .chart-plot')?.dataset.drawn === '10'")
    page.locator(f"{chart} .chart-plot").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('step=9')")
    turn_to(page, "project/kept")
    until(page, f"document.querySelector('{chart} .chart-plot')?.dataset.drawn === '60'")
    show.forgive("400")


def test_a_chart_leads_on(kept: RunningHub, show: Opened) -> None:
    """Its menu leads to a dashboard, an alert rule and a statement, each of its metric."""
    page = show(kept, "project/kept", fresh=True)
    page.get_by_role("button", name="Settings of trainer/loss").click()
    page.get_by_role("link", name="New dashboard with it").click()
    text = page.get_by_label("The dashboard as YAML")
    text.wait_for()
    assert 'keys: ["trainer/loss"]' in text.input_value()
    page.go_back()
    page.get_by_role("button", name="Settings of trainer/loss").click()
    page.get_by_role("link", name="Alert me when…").click()
    until(page, "document.querySelector('.menu input')?.value === 'trainer/loss'")
    page.go_back()
    page.get_by_role("button", name="Settings of trainer/loss").click()
    page.get_by_role("link", name="SQL", exact=True).last.click()
    page.get_by_role("button", name="Run", exact=True).click()
    until(page, "document.querySelector('.sql-cell')?.textContent.startsWith('r')")


def test_latest_is_the_newest_run(kept: RunningHub, show: Opened) -> None:
    """An address that stays leads to whichever run began last, and keeps the rest of it."""
    page = show(kept, "run/latest?tab=overview", fresh=True)
    until(page, "location.hash === '#/run/r5?tab=overview'")
    page.locator("h1", has_text="seed-5").wait_for()


def test_a_name_that_is_taken_is_refused(kept: RunningHub, show: Opened) -> None:
    """The hub says why, and what was typed stays."""
    _clear(kept)
    assert kept.request("POST", "/api/views?project=kept", b'{"name": "Taken", "query": ""}').status == 200
    page = show(kept, "project/kept", fresh=True)
    page.get_by_role("button", name="Views").click()
    page.get_by_role("link", name="Taken").wait_for()
    with page.expect_response(lambda answer: answer.request.method == "POST" and "/api/views" in answer.url):
        _name(page, "Taken", "Save view")
    page.get_by_text("there is a view 'Taken' already").wait_for()
    assert page.get_by_role("textbox", name="Name of the view").input_value() == "Taken"
    show.forgive("409")


@SIZES
def test_everyone_can_use_it(kept: RunningHub, show: Opened, width: int, theme: str) -> None:
    """The menu with its views fits a phone and a desk, in both themes, and axe finds nothing serious."""
    _clear(kept)
    made = kept.request("POST", "/api/views?project=kept", b'{"name": "A view with a rather long name", "query": ""}')
    assert made.status == 200
    page = show(kept, "project/kept?view=none", width=width, theme=theme)
    page.get_by_role("button", name="Views").click()
    page.get_by_role("link", name="A view with a rather long name").wait_for()
    look_over(page, kept, ["project/kept?view=none"])


MOVABLE = "pin=trainer/loss&pin=trainer/accuracy&expr=%7Btrainer/loss%7D+-+%7Btrainer/accuracy%7D"


@SIZES
def test_groups_grips_and_expressions_are_for_everyone(kept: RunningHub, show: Opened, width: int, theme: str) -> None:
    """Rows of groups, charts that can be moved and charts of expressions fit, and axe finds nothing serious."""
    page = show(kept, width=width, theme=theme)
    views = [
        "runs?group=config.lr",
        f"project/kept?view=none&group=config.lr&{MOVABLE}",
        f"run/r3?tab=charts&{MOVABLE}",
    ]
    look_over(page, kept, views)


def test_notes_of_a_project(kept: RunningHub, show: Opened) -> None:
    """They are written on the page, shown as Markdown with charts of the visible runs, and kept for everybody."""
    page = show(kept, "project/kept?view=none&tab=notes")
    page.get_by_text("No notes yet").wait_for()
    page.get_by_role("button", name="Edit notes").click()
    page.get_by_role("textbox", name="Notes").fill("# The plan\n\n```chart\ntrainer/loss\n```\n\n<b>no HTML</b>")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("heading", name="The plan").wait_for()
    page.get_by_text("<b>no HTML</b>").wait_for()
    until(page, "document.querySelector('.project-notes .chart-plot')?.dataset.drawn === '60'")  # six runs of ten steps
    assert kept.request("GET", "/api/views?project=kept").json()["notes"].startswith("# The plan")
    turn_to(page, "project/kept?view=none&tab=notes&run=r1&run=r2")
    until(page, "document.querySelector('.project-notes .chart-plot')?.dataset.drawn === '20'")
    page.get_by_role("button", name="Edit notes").click()
    page.get_by_role("textbox", name="Notes").fill("")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("No notes yet").wait_for()


def test_notes_that_somebody_else_changed_are_not_replaced(kept: RunningHub, show: Opened) -> None:
    """The page says so, and what was written stays in the field; leaving it asks first."""
    page = show(kept, "project/kept?view=none&tab=notes", fresh=True)
    page.get_by_role("button", name="Edit notes").click()
    field = page.get_by_role("textbox", name="Notes")
    field.fill("mine")
    assert kept.request("PUT", "/api/views?project=kept", b'{"notes": "theirs"}').status == 200
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("changed by somebody else in the meantime").wait_for()
    assert field.input_value() == "mine"
    assert kept.request("GET", "/api/views?project=kept").json()["notes"] == "theirs"
    page.get_by_role("button", name="Cancel").click()
    asked = page.get_by_role("dialog", name="Discard unsaved changes?")
    asked.get_by_role("button", name="Discard", exact=True).click()
    field.wait_for(state="detached")
    assert kept.request("PUT", "/api/views?project=kept", b'{"notes": ""}').status == 200
    show.forgive("409")


@SIZES
def test_notes_of_a_project_are_for_everyone(kept: RunningHub, show: Opened, width: int, theme: str) -> None:
    """Notes with a chart fit a phone and a desk, and axe finds nothing serious."""
    text = '{"notes": "# Plan\\\\n\\\\nwords\\\\n\\\\n```chart\\\\ntrainer/loss\\\\n```"}'.replace("\\\\", "\\")
    assert kept.request("PUT", "/api/views?project=kept", text.encode()).status == 200
    page = show(kept, width=width, theme=theme)
    look_over(page, kept, ["project/kept?view=none&tab=notes"])
    assert kept.request("PUT", "/api/views?project=kept", b'{"notes": ""}').status == 200
