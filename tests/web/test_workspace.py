"""The workspace of a project: its runs in a list beside charts in which all visible runs lie over each other."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from stepscope.model.names import EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, turn_to, until
from tests.web.looks import SIZES, look_over
from tests.web.stored import hub_with

START = 1_790_000_000 * 10**9
SECOND = 10**9
RUNS, STEPS, METRICS = 60, 12, 30
RATES = (1e-4, 3e-4, 1e-3)
LOSS = '.chart[data-key="trainer/loss"]'


def _run(number: int) -> Batch:
    start = START + number * 100 * SECOND
    writer = Writer(
        id="w", run=f"r{number:02d}", project="sweep", name=f"seed-{number:02d}", wall_ns=start, host="a", world_size=1
    )
    config = {"lr": RATES[number % 3], "seed": number}
    records: list[Record] = [
        Event(start, None, None, None, None, 9, EVENT_STARTED, {"config": config, "tags": {"team": "red"}})
    ]
    for step in range(STEPS):
        values = {"loss": 100.0 if (number, step) == (7, 5) else number + math.exp(-step)}
        values |= {f"part{part}/norm": float(part) for part in range(METRICS)}
        records.append(Metric(start + step * SECOND, step, None, "trainer", values))
    records.append(Event(start + STEPS * SECOND, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"}))
    return Batch(writer, 1, records)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with 60 runs of three learning rates, each with 31 metrics; one has a spike."""
    with hub_with(tmp_path_factory.mktemp("sweep") / "home", [_run(number) for number in range(RUNS)]) as hub:
        yield hub


def _lines(page: Any, lines: int) -> None:
    """Wait until the loss has so many lines, each of every step."""
    until(page, f"document.querySelector('{LOSS} .chart-plot')?.dataset.drawn === '{lines * STEPS}'")


def test_projects_lead_to_their_workspace(sweep: RunningHub, show: Opened) -> None:
    """The list of projects has what goes on in each, and opens its runs over each other."""
    page = show(sweep, "projects")
    row = page.locator('.vt-row[data-id="sweep"]')
    row.wait_for()
    assert row.inner_text().split("\n")[:2] == ["sweep", "60"]
    row.click()
    _lines(page, 50)
    assert page.title() == "sweep · Stepscope"
    page.get_by_text("50 of 60 visible").wait_for()


def test_only_what_is_seen_is_asked_for(sweep: RunningHub, show: Opened) -> None:
    """A chart in sight takes one request for all its runs; the charts below it take none until they are scrolled to."""
    page = show(sweep, "runs", fresh=True, height=700)
    asked: list[dict[str, list[str]]] = []
    page.on(
        "request",
        lambda request: asked.append(parse_qs(urlsplit(request.url).query)) if "/api/series?" in request.url else None,
    )
    turn_to(page, "project/sweep")
    _lines(page, 50)
    until(
        page, "[...document.querySelectorAll('.chart')].filter((each) => each.querySelector('[data-drawn]')).length > 1"
    )
    keys = [each["key"][0] for each in asked]
    assert len(keys) == len(set(keys)) < METRICS / 2
    assert {len(each["run"]) for each in asked} == {50}
    below = page.locator(".chart").last.get_attribute("data-key")
    assert below not in keys
    page.locator(f'.chart[data-key="{below}"]').scroll_into_view_if_needed()
    until(page, f"document.querySelector('.chart[data-key=\"{below}\"] .chart-plot')?.dataset.drawn > 0")


def test_the_filter_drives_list_and_charts(sweep: RunningHub, show: Opened) -> None:
    """What is searched for is in the list, in the charts and in the address; an eye hides a run from the charts."""
    page = show(sweep, "project/sweep")
    page.get_by_role("combobox", name="Filter runs").fill("config.lr = 0.001 and config.seed < 30")
    _lines(page, 10)
    assert page.locator(".workspace-list .vt-row").count() == 10
    page.get_by_role("button", name="Hide seed-02").click()
    _lines(page, 9)
    assert "hide=r02" in page.url
    assert "filter=config.lr" in page.url
    page.reload()
    _lines(page, 9)
    page.get_by_role("button", name="Show seed-02").click()
    _lines(page, 10)


def test_all_and_no_runs_can_be_shown(sweep: RunningHub, show: Opened) -> None:
    """Beyond the first fifty, runs are shown by their eye or all at once."""
    page = show(sweep, "project/sweep")
    _lines(page, 50)
    page.get_by_role("button", name="Which runs are visible").click()
    page.get_by_role("button", name="All", exact=True).click()
    _lines(page, 60)
    page.get_by_role("button", name="Which runs are visible").click()
    page.get_by_role("button", name="None", exact=True).click()
    page.get_by_text("No run is visible").first.wait_for()
    page.get_by_role("button", name="Show seed-59").click()
    _lines(page, 1)


def test_metrics_are_found_in_a_flat_grid(sweep: RunningHub, show: Opened) -> None:
    """Charts stand in sections; a search shows what it finds without them, by words or a regular expression."""
    page = show(sweep, "project/sweep")
    page.get_by_role("button", name=re.compile(r"^trainer 31")).wait_for()
    page.get_by_role("searchbox", name="Find a metric").fill("part[12]/")
    until(page, "document.querySelectorAll('.chart').length === 2")
    assert page.locator(".group-head").count() == 0
    page.get_by_role("searchbox", name="Find a metric").fill("")
    page.get_by_role("button", name="Pin trainer/part3/norm").click()
    page.get_by_role("button", name=re.compile("^pinned 1")).wait_for()
    assert page.locator(".chart").first.get_attribute("data-key") == "trainer/part3/norm"


def test_a_group_is_a_line_with_its_spread(sweep: RunningHub, show: Opened) -> None:
    """Grouped by a setting, each value has one line: the mean of its runs, and their range around it."""
    page = show(sweep, "project/sweep?group=config.lr&filter=config.seed+%3C+30")
    _lines(page, 3)
    names = page.locator(f"{LOSS} .chart-legend button").all_inner_texts()
    assert sorted(names) == ["0.0001 (10)", "0.0003 (10)", "0.001 (10)"]
    plot = page.locator(f"{LOSS} .chart-plot")
    plot.focus()
    page.keyboard.press("End")
    readout = page.locator(f"{LOSS} .chart-readout").inner_text()
    found = re.search(r"([\d.]+) \((\d+)\)\s+([\d.]+) \[([\d.]+) … ([\d.]+)\]", readout)
    assert found, readout
    first = {"0.0001": 0, "0.0003": 1, "0.001": 2}[found[1]]
    assert [float(found[n]) for n in (3, 4, 5)] == pytest.approx([first + 13.5, first, first + 27], rel=0.01, abs=0.01)
    page.locator(f"{LOSS} .chart-legend button", has_text="0.0003").click()
    _lines(page, 2)


def test_the_pointer_reads_every_run(sweep: RunningHub, show: Opened) -> None:
    """The tip has every run's value at x, the highest first; the run under the pointer stands out in the list too."""
    page = show(sweep, "project/sweep?filter=config.seed+%3C+5")
    _lines(page, 5)
    box = page.locator(f"{LOSS} .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 6, box["y"] + box["height"] / 4)
    until(page, f"document.querySelectorAll('{LOSS} .chart-tip div').length === 6")
    rows = page.locator(f"{LOSS} .chart-tip div").all_inner_texts()
    assert rows[0].startswith("step 11")
    assert [row.split("\n")[0] for row in rows[1:]] == [f"seed-0{n}" for n in (4, 3, 2, 1, 0)]
    until(page, "document.querySelector('.workspace-list .vt-row.on')?.dataset.id === 'r04'")
    page.locator('.workspace-list .vt-row[data-id="r02"]').hover()
    until(page, "document.querySelector('.workspace-list .vt-row.on')?.dataset.id === 'r02'")
    page.mouse.click(box["x"] + box["width"] - 6, box["y"] + box["height"] / 4)
    until(page, "location.hash.startsWith('#/run/r04')")


def test_a_run_without_findings_opens_with_its_charts(sweep: RunningHub, show: Opened) -> None:
    """A run in which nothing went wrong has nothing to read but its charts; one with findings opens its diagnosis."""
    page = show(sweep, "run/r01")
    page.locator(LOSS).wait_for()
    assert "tab=" not in page.url


def test_a_chart_has_its_own_range_and_scale(sweep: RunningHub, show: Opened, tmp_path: Path) -> None:
    """The menu of a chart leaves outliers out and counts them, sets log and the ends of y, and saves what is drawn."""
    page = show(sweep, "project/sweep?filter=config.seed+%3C+10", fresh=True)
    _lines(page, 10)
    menu = page.get_by_role("button", name="Settings of trainer/loss")
    menu.click()
    page.get_by_label("Without outliers").check()
    until(page, f"document.querySelector('{LOSS} .chart-count').title.includes('1 outside the range')")
    assert "y%3Arobust" in page.url
    page.get_by_label("Greatest y").fill("4.5")
    until(page, f"document.querySelector('{LOSS} .chart-count').title.includes('outside the range')")
    page.get_by_label("Logarithmic y axis").check()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Values (CSV)").click()
    rows = Path(saved.value.path()).read_text().splitlines()
    assert (rows[0], len(rows)) == ("line,x,x_last,mean,min,max,count", 1 + 10 * STEPS)
    assert any(row.startswith("seed-07,5,5,100,") for row in rows)
    menu.click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Picture (PNG)").click()
    assert Path(saved.value.path()).read_bytes()[:4] == b"\x89PNG"
    page.reload()
    _lines(page, 10)
    menu.click()
    assert page.get_by_label("Logarithmic y axis").is_checked()
    page.get_by_role("button", name="Reset this chart").click()
    until(page, "!location.hash.includes('chart=')")


def test_another_metric_runs_along_x(sweep: RunningHub, show: Opened) -> None:
    """X may be any metric of the project, for all runs; a click opens the step, and the choice is in the address."""
    page = show(sweep, "project/sweep?filter=config.seed+%3C+3")
    _lines(page, 3)
    page.locator(".controls select").first.select_option("trainer/loss")
    chart = '.chart[data-key="trainer/part0/norm"]'
    until(page, f"document.querySelector('{chart} .chart-plot')?.dataset.drawn === '{3 * STEPS}'")
    plot = page.locator(f"{chart} .chart-plot")
    plot.focus()
    page.keyboard.press("End")
    until(page, f"document.querySelector('{chart} .chart-readout').textContent.startsWith('3 ')")
    assert "x=trainer/loss" in page.url
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Step 0").wait_for()
    assert "run/r02" in page.url


def test_values_stand_below_a_chart(sweep: RunningHub, show: Opened) -> None:
    """The last, lowest and highest value of each line, for all charts or for one, of what the zoom shows."""
    page = show(sweep, "project/sweep?filter=config.seed+%3C+8+and+config.seed+%3E+5")
    _lines(page, 2)
    assert page.locator(".chart-values").count() == 0
    page.get_by_role("button", name="Settings of trainer/loss").click()
    page.get_by_label("Values below the chart").check()
    rows = page.locator(f"{LOSS} .chart-values tbody tr")
    until(page, "document.querySelectorAll('.chart-values').length === 1")
    assert [each.split("\t") for each in rows.all_inner_texts()] == [
        ["seed-07", "7", "7", "100"],
        ["seed-06", "6", "6", "7"],
    ]
    turn_to(page, "project/sweep?filter=config.seed+%3D+7&values=1&from=0&to=2")
    rows.first.wait_for()
    until(page, "document.querySelectorAll('.chart-values').length > 1")
    assert rows.all_inner_texts()[0].split("\t")[1:] == ["7.135", "7.135", "8"]
    turn_to(page, "run/r07?tab=charts")
    page.get_by_role("switch", name="values").or_(page.get_by_role("button", name="values")).click()
    values = page.locator('.chart[data-key="trainer/loss"] .chart-values td')
    values.first.wait_for()  # other charts may be drawn before this one
    assert values.all_inner_texts() == ["7", "7", "100"]


def test_settings_of_visible_runs_are_compared(sweep: RunningHub, show: Opened) -> None:
    """What differs between the visible runs is a table with a column for each."""
    page = show(sweep, "project/sweep?tab=config&filter=config.seed+%3C+4")
    page.get_by_text("settings differ").wait_for()
    assert page.locator(".diff thead th").count() == 5
    assert page.get_by_role("rowheader", name="lr").count() == 1


def test_the_table_has_the_extremes_of_a_metric(sweep: RunningHub, show: Opened) -> None:
    """The lowest, highest or best value of a metric is a column, by which the table is sorted."""
    page = show(sweep, "runs", fresh=True)
    page.locator(".vt-row").first.wait_for()
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="max loss").check()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="max loss").click()
    until(page, "document.querySelector('.vt-row')?.dataset.id === 'r07'")
    assert "sort=-max.loss" in page.url
    assert "100" in page.locator(".vt-row").first.inner_text().split("\n")


def test_the_table_has_columns_that_are_computed(sweep: RunningHub, show: Opened) -> None:
    """The mean of the last steps, and a metric where another one is best, are columns made in a form, and sort."""
    page = show(sweep, "runs", fresh=True)
    page.locator(".vt-row").first.wait_for()
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Metric", exact=True).fill("loss")
    page.get_by_label("Steps", exact=True).fill("3")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_label("Metric", exact=True).fill("trainer/part4/norm")
    page.get_by_label("What of it").select_option("max")
    page.get_by_label("Other metric").fill("trainer/loss")
    page.get_by_role("button", name="Add", exact=True).click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="loss, mean of 3").click()
    until(page, "document.querySelector('.vt-row')?.dataset.id === 'r59'")
    assert "sort=-last3.loss" in page.url
    until(page, "document.querySelector('.vt-row').innerText.split('\\n').includes('59')")
    page.get_by_role("button", name="part4/norm at max loss").wait_for()
    until(page, "document.querySelector('.vt-row').innerText.split('\\n').includes('4')")


def test_an_expression_is_a_chart(sweep: RunningHub, show: Opened) -> None:
    """An expression has a line for each visible run, is in the address, and goes away again."""
    page = show(sweep, "project/sweep?filter=config.seed+%3C+10", fresh=True)
    _lines(page, 10)
    page.get_by_role("button", name="Expression", exact=True).click()
    page.get_by_label("Expression of metrics").fill("{trainer/loss} * 2 - {trainer/part3/norm}")
    page.get_by_role("button", name="Add a chart").click()
    chart = '.chart[data-key="{trainer/loss} * 2 - {trainer/part3/norm}"]'
    until(page, f"document.querySelector('{chart} .chart-plot')?.dataset.drawn === '{10 * STEPS}'")
    assert "expr=" in page.url
    page.get_by_role("button", name=re.compile("^Settings of {trainer")).click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Values (CSV)").click()
    rows = Path(saved.value.path()).read_text().splitlines()
    assert any(row.startswith("seed-07,5,5,197,") for row in rows)
    page.reload()
    until(page, f"document.querySelector('{chart} .chart-plot')?.dataset.drawn === '{10 * STEPS}'")
    page.locator(".controls").get_by_role("button", name="Expressions 1").click()
    page.get_by_role("button", name=re.compile("^Remove {trainer")).click()
    until(page, f"document.querySelector('{chart}') === null")


def test_settings_are_related_to_a_result(sweep: RunningHub, show: Opened) -> None:
    """A result is drawn against a setting and over several; what each explains is a table. A point opens its run."""
    page = show(sweep, "project/sweep?tab=relations&filter=config.seed+%3C+30")
    until(page, "document.querySelectorAll('.relation-point').length === 30")
    assert page.locator(".relation-weights tbody th").all_inner_texts() == ["seed", "lr"]
    assert page.locator(".relation-weights tbody tr").first.inner_text().split()[-2:] == ["100", "%"]
    assert page.locator(".relation-line").count() == 30
    page.get_by_role("combobox", name="Against").select_option("config.lr")
    page.locator('[aria-label="best loss against lr, 30 runs"]').wait_for()
    assert "against=config.lr" in page.url
    page.get_by_role("combobox", name="Result").select_option("metrics.trainer/part5/norm")
    page.locator('[aria-label="trainer/part5/norm against lr, 30 runs"]').wait_for()
    page.get_by_role("button", name=re.compile("^Axes")).click()
    page.get_by_role("checkbox", name="seed").uncheck()
    until(page, "document.querySelectorAll('.relation-axis').length === 2")
    page.keyboard.press("Escape")
    page.get_by_role("link", name=re.compile("^seed-07 · lr")).focus()
    page.keyboard.press("Enter")
    until(page, "location.hash.startsWith('#/run/r07')")


@SIZES
def test_everyone_can_use_it(sweep: RunningHub, show: Opened, width: int, theme: str) -> None:
    """Nothing is wider than the window, and axe finds nothing serious, on a phone and on a desk, in both themes."""
    page = show(sweep, "projects", width=width, theme=theme)
    look_over(
        page,
        sweep,
        [
            *("projects", "project/sweep", "project/sweep?group=config.lr", "project/sweep?tab=config&run=r01&run=r02"),
            *("project/sweep?expr=log(%7Btrainer%2Floss%7D)", "project/sweep?tab=relations"),
        ],
    )
    if width > 900:
        return
    page.goto(f"{sweep.url}/#/project/sweep")
    page.get_by_role("button", name="Runs 50 of 60").click()
    page.locator(".workspace-list .vt-row").first.wait_for()
