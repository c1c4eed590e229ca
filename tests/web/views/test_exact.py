"""Numbers to the last digit: settings, attributes and cells are shown, compared, searched and exported as they were."""

import time
from pathlib import Path
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Log, Metric, Record, Span
from tests.waiting import wait_until
from tests.web.conftest import turn_to, until
from tests.web.views.conftest import World

SEEDS = (123456789, 123456788)
WIDE = 1794766082746843244
ATTRS = {"batch": 64.0, "tokens": 1234567, "shift": -12, "lr": 1e-05, "seed": WIDE, "share": 0.123456789012, "on": True}
ATTRS |= {"shape": [2, 0.5, "a"]}
TRACE = b"exact-numbers-ab"


@pytest.fixture(scope="module")
def exact(world: World) -> World:
    """The hub with two runs that differ in the last digit of a seed, with spans and lines with numbers of all kinds."""
    now = time.time_ns()
    for number, seed in enumerate(SEEDS):
        writer = Writer(id=f"exact{number}", run=f"exact-{number}", project="exact", wall_ns=now)
        config = {"seed": seed, "wide": WIDE + number, "lr": 3e-4}
        records: list[Record] = [
            Event(now, None, None, None, None, 9, names.EVENT_STARTED, {"config": config}),
            Metric(now, 1, None, "trainer", {"loss": 1.5}),
            Span(now, 10**6, 1, None, TRACE, bytes([number + 1]) * 8, None, "numbered", attrs=dict(ATTRS)),
            Log(now, 1, None, None, None, 9, "numbered line", dict(ATTRS)),
        ]
        world.send([Batch(writer, 1, records)])
    wait_until(lambda: len(world.ask("/api/runs?filter=project%20%3D%20exact")["runs"]) == 2)
    return world


def test_settings_are_shown_to_the_last_digit(exact: World, show: Any) -> None:
    """The configuration of a run, its column in the table and the difference of two runs show what was given."""
    page = show(exact.hub, "run/exact-0?tab=overview")
    settings = page.locator("section[aria-label=Configuration]")
    settings.get_by_text(str(SEEDS[0]), exact=True).wait_for()
    settings.get_by_text(str(WIDE), exact=True).wait_for()
    settings.get_by_text("0.0003", exact=True).wait_for()
    page.goto(f"{exact.hub.url}/#/compare?run=exact-0&run=exact-1&tab=config")
    page.locator(".diff td").first.wait_for()
    said = page.locator(".diff td").all_inner_texts()
    assert {str(SEEDS[0]), str(SEEDS[1]), str(WIDE), str(WIDE + 1)} <= set(said)
    assert page.locator(".diff .changed").count() >= 2
    page.goto(f"{exact.hub.url}/#/runs?filter=project+%3D+exact&group=config.wide")
    page.locator(".vt-row.heading").filter(has_text=str(WIDE + 1)).wait_for()


def test_every_attribute_leads_to_what_carries_it(exact: World, show: Any) -> None:
    """The link of an attribute finds the span and the line it was taken from, whatever its value is."""
    page = show(exact.hub, f"traces?trace={TRACE.hex()}&span={bytes([1] * 8).hex()}")
    spans = _links(page.locator(".trace-attrs"))
    turn_to(page, "logs?run=exact-0")
    page.locator(".log-line", has_text="numbered line").click()
    found = _links(page.get_by_role("dialog"))
    for key in ATTRS:
        turn_to(page, spans[key])
        until(page, "location.hash.includes('attr=') && document.querySelectorAll('.vt-row').length === 1")
        assert "numbered" in page.locator(".vt-row").inner_text()
        turn_to(page, found[key])
        until(page, "location.hash.includes('attr=')")
        until(page, "document.querySelector('.table-foot').innerText.startsWith('1 lines')")


def _links(part: Any) -> dict[str, str]:
    """Where the links of attributes lead, by key."""
    part.get_by_role("link", name="shape", exact=True).wait_for()
    links = {key: part.get_by_role("link", name=key, exact=True).get_attribute("href") for key in ATTRS}
    return {key: str(href).removeprefix("#/") for key, href in links.items()}


def test_cells_and_their_file_are_exact(exact: World, show: Any) -> None:
    """Integers that no double holds are shown, sorted and exported with all their digits."""
    page = show(exact.hub, "sql")
    area = page.get_by_label("Statement")
    numbers = [18446744073709551614, 18446744073709551615, WIDE, WIDE + 1, 7]
    area.fill(f"SELECT arrayJoin([{', '.join(map(str, numbers))}]) AS n, [n] AS many, 0.5 AS half")
    area.press("Control+Enter")
    page.get_by_text("5 rows in").wait_for()
    cells = "[...document.querySelectorAll('.vt-row')].map((row) => row.querySelector('.sql-cell').innerText)"
    assert page.evaluate(cells) == list(map(str, numbers))
    page.locator(".vt-sort").first.click()
    until(page, "document.querySelector('.vt-sort.on')")
    assert page.evaluate(cells) == list(map(str, sorted(numbers, reverse=True)))
    assert f"[{WIDE}]" in page.locator(".vt-body").inner_text()
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    lines = Path(saved.value.path()).read_text().splitlines()
    assert lines == ["n,many,half", *(f"{n},[{n}],0.5" for n in numbers)]


def test_a_link_fills_the_box_and_runs_nothing(world: World, show: Any) -> None:
    """A statement in the address, by a link or by going back, is not run until the reader runs it."""
    page = show(world.hub, "sql?q=SELECT+1+AS+first")
    until(page, "document.querySelector('textarea')?.value === 'SELECT 1 AS first'")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("location.hash = '#/sql?q=SELECT+2+AS+second'")
    until(page, "document.querySelector('textarea')?.value === 'SELECT 2 AS second'")
    assert page.get_by_role("columnheader", name="second").count() == 0
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("columnheader", name="second").wait_for()
    assert sum(url.endswith("/api/sql") for url in asked) == 1
    page.go_back()
    until(page, "document.querySelector('textarea')?.value === 'SELECT 1 AS first'")
    assert page.get_by_role("columnheader", name="second").count() == 1
