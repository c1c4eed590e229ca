"""The table of runs: thousands of them smooth, a filter that helps, groups, comparison, and a first page."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, turn_to, until
from tests.web.stored import hub_with

MANY = 2000
START = 1_790_000_000 * 10**9
LONG, LONG_ONE = "resnet50-imagenet-" + "a-setting-" * 8 + "seed-1234", 1000


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with two thousand runs, stored directly: starting so many trainers would take long."""
    with hub_with(tmp_path_factory.mktemp("crowd") / "home", [_batch(number) for number in range(MANY)]) as hub:
        yield hub


def _batch(number: int) -> Batch:
    begun, name = START + number * 10**9, LONG if number == LONG_ONE else f"sweep {number:04d}"
    writer = Writer(id=f"w{number}", run=f"run-{number:04d}", project=f"p{number % 5}", name=name, wall_ns=begun)
    config = {"lr": 10.0 ** -(number % 6), "optimizer": {"name": "adam" if number % 2 else "sgd"}}
    started = {"config": config, "tags": {"team": "red"}}
    records: list[Record] = [
        Event(begun, None, None, None, None, 9, names.EVENT_STARTED, started),
        Metric(begun + 10**9, 1, None, "trainer", {"loss": 2 + number / MANY}),
        Metric(begun + 2 * 10**9, 2, None, "trainer", {"loss": 1 + number / MANY}),
        Event(begun + 3 * 10**9, None, None, None, None, 9, names.EVENT_FINISHED, {"status": "finished"}),
    ]
    return Batch(writer, 1, records)


def test_thousands_of_runs_scroll(crowd: RunningHub, show: Opened) -> None:
    """All are there, a screenful is drawn, and the end is a key away."""
    page = show(crowd, "runs")
    until(page, f"document.querySelector('[role=grid]')?.getAttribute('aria-rowcount') === '{MANY + 1}'")
    assert page.evaluate("document.querySelectorAll('.vt-row').length") < 60
    assert page.locator(".vt-row").first.inner_text().startswith("✓")
    page.locator('.vt-row[data-row="0"]').focus()
    page.keyboard.press("End")
    page.get_by_text("sweep 0000").wait_for()
    assert page.evaluate("document.activeElement.dataset.row") == str(MANY - 1)
    assert page.evaluate("document.querySelectorAll('.vt-row').length") < 60
    until(page, "document.querySelectorAll('.spark polyline').length > 10")


@pytest.mark.parametrize("width", [1440, 390])
def test_a_long_name_keeps_its_end(crowd: RunningHub, show: Opened, width: int) -> None:
    """What tells the runs of a sweep apart is at the end of their names, and is in sight."""
    page = show(crowd, f"runs?filter=id%20%3D%20run-{LONG_ONE}", width=width)
    link = page.get_by_role("link", name=LONG, exact=True)
    link.wait_for()
    start, end = link.locator("span").all()
    assert start.evaluate("each => each.scrollWidth > each.clientWidth")
    assert end.inner_text().endswith("seed-1234")
    assert end.evaluate(
        "each => each.getBoundingClientRect().right <= each.closest('a').getBoundingClientRect().right + 1"
    )


def test_filter_completes_and_explains(crowd: RunningHub, show: Opened) -> None:
    """Fields, operators and values are offered as one types; a mistake is explained where it stands."""
    page = show(crowd, "runs")
    field = page.get_by_role("combobox", name="Filter runs")
    field.click()
    field.type("metrics.trainer/lo")
    page.get_by_role("option").filter(has_text="metrics.trainer/loss").wait_for()
    page.keyboard.press("ArrowDown")
    page.locator("#filter-option-0[aria-selected=true]").wait_for()
    page.keyboard.press("Tab")
    wait_until(lambda: field.input_value() == "metrics.trainer/loss ")
    page.get_by_role("option").filter(has_text="<=").wait_for()
    until(page, "decodeURIComponent(location.hash).includes('filter=metrics.trainer/loss')")
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert field.input_value() == "metrics.trainer/loss ", "what comes back from the address replaces nothing"
    field.type("< 1.005 and project = p")
    page.get_by_role("option").filter(has_text="p3").wait_for()
    field.type("3")
    page.keyboard.press("Enter")
    page.get_by_text("2 of 2,000 runs").wait_for()
    assert page.locator(".vt-row").count() == 2
    assert "filter=metrics.trainer" in page.url
    field.fill("statsu = running")
    page.get_by_role("alert").filter(has_text="runs have no field 'statsu'").wait_for()
    show.forgive("400")


def test_groups_sorting_and_columns(crowd: RunningHub, show: Opened) -> None:
    """Runs can be grouped by a setting, sorted by a column, and shown with more columns; the address has it."""
    page = show(crowd, "runs?group=config.optimizer.name&filter=project+%3D+p1")
    page.locator(".vt-row.heading").filter(has_text="sgd").wait_for()
    turn_to(page, "runs")
    page.get_by_role("button", name="loss", exact=True).click()
    until(page, "location.hash.includes('sort=-metrics.loss')")
    page.get_by_text(f"sweep {MANY - 1}").wait_for()
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="lr").check()
    page.get_by_role("columnheader", name="lr").wait_for()


def test_group_rows_have_the_mean_and_the_spread(crowd: RunningHub, show: Opened) -> None:
    """A group is a row with the mean ± spread of each metric over all its runs; it folds, and sorts by the mean."""
    page = show(crowd, "runs?group=config.optimizer.name&sort=-metrics.loss")
    row = page.locator(".vt-row.heading").first
    row.filter(has_text="adam").filter(has_text="1,000").wait_for()
    assert row.locator(".spread").first.get_attribute("title").startswith("mean ± standard deviation of 1,000 runs")
    assert "1.5 ± 0.29" in row.inner_text().replace("\u00a0", " ")
    page.get_by_role("button", name="Fold all").click()
    until(page, "document.querySelectorAll('.vt-row').length === 2")
    page.get_by_role("button", name="loss", exact=True).click()
    until(page, "document.querySelector('.vt-row').innerText.includes('sgd')")
    page.locator('.vt-row[data-row="0"]').focus()
    page.keyboard.press("Enter")
    page.get_by_text("sweep 0000").wait_for()


def test_another_question_begins_at_the_top(crowd: RunningHub, show: Opened) -> None:
    """Sorting, grouping or filtering scrolls back to the first rows."""
    page = show(crowd, "runs")
    until(page, f"document.querySelector('[role=grid]')?.getAttribute('aria-rowcount') === '{MANY + 1}'")
    top = "document.querySelector('[role=grid]').scrollTop"
    for act in (
        lambda: page.get_by_role("button", name="duration", exact=True).click(),
        lambda: page.get_by_label("group").select_option("project"),
        lambda: page.get_by_role("combobox", name="Filter runs").fill("sweep"),
    ):
        until(page, f"({top} = 20000) && {top} > 10000")
        act()
        until(page, f"{top} === 0")


def test_plain_words_find_runs(crowd: RunningHub, show: Opened) -> None:
    """A word that is no condition is looked for in what people call a run; a metric that nobody has is said."""
    page = show(crowd, "runs")
    field = page.get_by_role("combobox", name="Filter runs")
    field.fill("sweep 0042")
    page.get_by_text("1 of 2,000 runs").wait_for()
    field.fill("metrics.los < 3")
    page.get_by_role("alert").filter(has_text="did you mean metrics.loss").wait_for()
    show.forgive("400")


def test_picked_runs_are_compared(crowd: RunningHub, show: Opened) -> None:
    """Two ticks and a button lead to their curves over each other and to what differs in their settings."""
    page = show(crowd, "runs")
    page.locator('.vt-row[data-row="0"]').focus()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.get_by_role("button", name="Compare 2").click()
    until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn === '4'")
    page.get_by_role("button", name="Configuration").click()
    changed = page.locator(".diff .changed")
    changed.first.wait_for()
    assert page.get_by_role("rowheader", name="lr").count() == 1


def test_first_page_shows_what_to_paste(tmp_path: Path, show: Opened) -> None:
    """A hub without runs shows every way in, with this hub's address, and the folder that it reads."""
    hub = RunningHub(tmp_path / "home").start()
    try:
        page = show(hub)
        page.get_by_text("No runs yet").wait_for()
        assert "stepscope.init(" in page.locator(".code").first.inner_text()
        page.get_by_text(str(tmp_path / "home")).first.wait_for()
        ways = page.locator(".code pre").all_inner_texts()
        for way in (
            f"WANDB_BASE_URL={hub.url} WANDB_API_KEY={'0' * 40} ",
            f"MLFLOW_TRACKING_URI={hub.url}",
            "stepscope import",
        ):
            assert any(text.startswith(way) for text in ways), way
        assert page.locator(".code-copy").count() == len(ways)
        page.get_by_text("Waiting for the first record").wait_for()
    finally:
        show.close()
        hub.kill()


def test_a_hub_that_reads_journals_says_so(tmp_path: Path, show: Opened) -> None:
    """After a start nothing is read yet: the page says how much is left, and not that there is nothing."""
    hub = RunningHub(tmp_path / "home").start()
    reading = threading.Event()
    reading.set()

    def answer(route: Any) -> None:
        health = hub.health()
        if reading.is_set():
            health["folder"] = {"writers": 12, "reading": True, "unread_bytes": 3_000_000}
        route.fulfill(json=health)

    try:
        page = show(hub, "projects", fresh=True)
        page.route("**/api/health", answer)
        for view, none in (("projects", "No projects yet"), ("runs", "No runs yet")):
            reading.set()
            turn_to(page, view)
            page.get_by_text("The hub is reading journals").wait_for()
            page.get_by_text("3 MB in 12 journals are left").wait_for()
            assert page.get_by_text(none).count() == 0
            reading.clear()
            page.get_by_text(none).wait_for()
    finally:
        show.close()
        hub.kill()
