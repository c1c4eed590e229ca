"""Health and SQL in the browser, and what all these views owe everyone: no serious finding of axe, no overflow."""

import json
from pathlib import Path
from typing import Any

from tests.web.conftest import until
from tests.web.looks import SIZES, look_over
from tests.web.test_every_view import VIEWS as IN_BOTH_THEMES
from tests.web.views.conftest import World
from tests.web.views.recorded import FAILED, RUN, STEPS, trace_of

VIEWS = (
    "traces",
    f"traces?trace={trace_of(FAILED).hex()}&view=waterfall",
    f"traces?run={RUN}&at={FAILED}&view=flame",
    f"traces?run={RUN}&at={FAILED}&view=names",
    f"logs?run={RUN}",
    f"dashboards/rl?run={RUN}",
    f"dashboards?new=1&edit=1&run={RUN}",
    "health",
    "api?open=listRuns",
    "sql?q=SELECT+name,+count()+AS+n+FROM+spans+GROUP+BY+name",
)
"""On a phone all of them are looked over; in a wide window `test_menus` looks over those of the shared list."""


def test_health_tells_what_became_of_records(world: World, show: Any) -> None:
    """What came in is counted by receiver, refusals are shown with their reason, sizes and lag are there."""
    bad = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "no ids", "startTimeUnixNano": "1"}]}]}]})
    world.hub.post("/v1/traces", bad.encode(), "application/json")
    page = show(world.hub, "health")
    page.locator(".health-card").first.wait_for()
    receivers = page.get_by_role("region", name="Ingest")
    receivers.get_by_text("trace id is not 16 bytes").wait_for()
    stored = world.hub.health()["receivers"]["import"]["stored"]
    assert f"{stored:,}" in receivers.inner_text()
    assert "some records were rejected" in page.locator(".health-verdict").inner_text()
    assert "spans" in page.get_by_role("region", name="Store").inner_text()
    assert "Nothing quarantined." in page.get_by_role("region", name="Quarantine").inner_text()


def test_health_shows_sinks_and_quarantine(world: World, show: Any) -> None:
    """A sink in trouble is named with its trouble."""
    folder = world.hub.home / "shipping"
    folder.mkdir(exist_ok=True)
    report = {
        "sink": "otlp",
        "place": "http://c:4318",
        "counts": {"written": 7, "rejected": 2},
        "trouble": "connection refused",
    }
    path = folder / "otlp@node.report"
    path.write_text(json.dumps({**report, "unread": 4096, "time": 1.0}))
    try:
        page = show(world.hub, "health")
        sinks = page.get_by_role("region", name="Sinks")
        sinks.get_by_text("http://c:4318").wait_for()
        assert "4.1 kB" in sinks.inner_text()
        page.get_by_text("otlp: connection refused").wait_for()
    finally:
        path.unlink()


def test_sql_answers_as_table_chart_and_file(world: World, show: Any) -> None:
    """Ctrl-Enter runs a statement; its rows are a table, a chart, and a file."""
    page = show(world.hub, "sql")
    area = page.get_by_label("Statement")
    area.fill("SELECT step, max(duration) / 1e6 AS ms FROM spans WHERE name = 'train.step' GROUP BY step ORDER BY step")
    area.press("Control+Enter")
    page.get_by_text(f"{STEPS} rows in").wait_for()
    assert "919" in page.locator(".vt-row").first.inner_text()
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    lines = Path(saved.value.path()).read_text().splitlines()
    assert (lines[0], len(lines)) == ("step,ms", STEPS + 1)
    page.locator("label", has_text="Chart").click()
    page.locator(".sql-plot canvas").wait_for()
    assert "view=chart" in page.url
    assert "q=SELECT" in page.url


def test_sql_refuses_in_place(world: World, show: Any) -> None:
    """What is no harmless SELECT is refused under the statement, which stays."""
    page = show(world.hub, "sql")
    area = page.get_by_label("Statement")
    for statement, word in {
        "SELECT * FROM file('/etc/passwd')": "file is not allowed",
        "DROP TABLE spans": "only SELECT",
        "SELECT nonsense FROM spans": "nonsense",
        "SELECT * FROM url('http://127.0.0.1/')": "url is not allowed",
    }.items():
        area.fill(statement)
        area.press("Control+Enter")
        page.locator("#sql-status.bad-text", has_text=word).wait_for()
        assert area.input_value() == statement
    show.forgive("400")


def test_schema_browser(world: World, show: Any) -> None:
    """Tables unfold to their columns, and a column goes where the cursor is."""
    page = show(world.hub, "sql")
    page.get_by_role("button", name="spans", exact=False).first.wait_for()
    page.locator(".sql-open", has_text="alerts").click()
    page.locator(".sql-columns button", has_text="severity").wait_for()
    page.get_by_label("Statement").fill("SELECT ")
    page.locator(".sql-columns button", has_text="severity").click()
    until(page, "document.querySelector('textarea').value === 'SELECT severity'")


def test_the_api_is_a_page(world: World, show: Any) -> None:
    """`/api` leads to every endpoint, found by a word; the command line of one works as it stands."""
    assert world.hub.request("GET", "/api").headers["location"] == "./#/api"
    page = show(world.hub, "api")
    until(page, "document.querySelectorAll('.endpoint').length > 50")
    page.get_by_role("searchbox", name="Find an endpoint").fill("goodput run")
    page.get_by_text("/api/runs/{run}/goodput").click()
    until(page, "location.hash.includes('open=')")
    line = page.locator(".endpoint-parts .code pre").inner_text()
    assert line.startswith("curl -s 'http://127.0.0.1:")
    assert world.hub.request("GET", line.split("'")[1].partition(str(world.hub.port))[2]).status == 200
    assert "goodput" in page.locator(".endpoint-parts > pre").last.inner_text()
    page.get_by_role("searchbox", name="Find an endpoint").fill("no such thing")
    page.get_by_text("No endpoint matches").wait_for()


@SIZES
def test_views_are_readable_and_fit(world: World, show: Any, width: int, theme: str) -> None:
    """People who cannot see colours, or the page, or use a mouse, are not shut out, nor those with a phone."""
    views = [each for each in VIEWS if width < 1280 or each not in IN_BOTH_THEMES]
    look_over(show(world.hub, width=width, theme=theme), world.hub, views)
