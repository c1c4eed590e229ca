"""Many ranks, many runs, narrow screens and values close together: nothing is refused, hidden or drawn alike."""

import json
import re
from collections.abc import Iterator

import pytest

from stepscope.model.names import EVENT_FINISHED, EVENT_STARTED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Log, Metric, Record, Span
from tests.hub.conftest import RunningHub
from tests.web.conftest import NO_VIEW, Opened, turn_to, until
from tests.web.looks import look_in_both_themes
from tests.web.stored import hub_with

START = 1_790_000_000 * 10**9
SECOND = 10**9
RUNS = 24
JSON = {"content-type": "application/json"}
TRACEBACK = "Traceback (most recent call last):\n  File train.py\r\nValueError: bad batch"


def _run(run: str, number: int, *, ranks: int = 1, keys: int = 1, base: float = 1.0) -> Iterator[Batch]:
    start = START + number * 100 * SECOND
    for rank in range(ranks):
        writer = Writer(
            id=f"{run}-{rank}", run=run, project="many", name=run, rank=rank, world_size=ranks, wall_ns=start, host="a"
        )
        records: list[Record] = [Event(start, None, None, None, None, 9, EVENT_STARTED, {"config": {"lr": 0.1}})]
        records += [
            Metric(
                start + step * SECOND,
                step,
                None,
                "trainer",
                {"loss" if key == 0 else f"layer{key}": base + key + rank / 100 - step / 50 for key in range(keys)},
            )
            for step in range(10)
        ]
        if ranks > RUNS:
            trace, lasts = bytes([rank + 1]) * 16, (100 + rank) * 10**6
            records.append(Span(start + 5 * SECOND, lasts, 5, None, trace, trace[:8], None, "train.step"))
        records.append(Log(start + SECOND, 1, None, None, None, 17, TRACEBACK))
        records.append(Event(start + 10 * SECOND, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"}))
        yield Batch(writer, 1, records)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with a run of 22 ranks, one of 70, and 24 small ones."""
    batches = [
        *_run("ranks-22", 0, ranks=22, keys=4),
        *_run("ranks-70", 1, ranks=70, keys=2),
        *(batch for n in range(RUNS) for batch in _run(f"run-{n:02d}", 2 + n, base=2.6)),
    ]
    with hub_with(tmp_path_factory.mktemp("many") / "home", batches) as hub:
        yield hub


@pytest.mark.parametrize(("run", "ranks", "charts"), [("ranks-22", 22, 4), ("ranks-70", 70, 2)])
def test_each_of_many_ranks_has_a_line(many: RunningHub, show: Opened, run: str, ranks: int, charts: int) -> None:
    """`each rank` draws every rank of every metric, however many there are."""
    page = show(many, f"run/{run}?rank=each", height=1600)
    until(page, f"document.querySelectorAll('.chart .chart-plot[data-drawn]').length === {charts}")
    words = f"{ranks * 10} points, {ranks * 10} shown"
    until(page, f"[...document.querySelectorAll('.chart-count')].every((each) => each.innerText === {words!r})")
    assert page.locator(".chart-note").count() == 0


def test_runs_have_styles_of_their_own(many: RunningHub, show: Opened) -> None:
    """Twelve runs have twelve colours, and a run keeps its own when others leave the comparison."""
    ids = [f"run-{n:02d}" for n in range(12)]
    page = show(many, "compare?" + "&".join(f"run={id}" for id in ids))
    script = """Object.fromEntries([...document.querySelectorAll(".workspace-list .vt-row")]
        .map((each) => [each.querySelector("a").innerText, each.querySelector("i").style.background]))"""
    until(page, "document.querySelectorAll('.workspace-list .vt-row').length === 12")
    before = page.evaluate(script)
    assert len(set(before.values())) == 12
    turn_to(page, "compare?run=run-07&run=run-03")
    until(page, "document.querySelectorAll('.workspace-list .vt-row').length === 2")
    assert page.evaluate(script) == {id: before[id] for id in ("run-07", "run-03")}


def test_runs_of_one_colour_differ_in_their_dashes(many: RunningHub, show: Opened) -> None:
    """Beyond twenty runs a colour comes again, as a dashed line."""
    page = show(many, "compare?run=run-00&run=run-20")
    until(page, "document.querySelectorAll('.workspace-list .vt-row').length === 2")
    second, first = page.evaluate(
        "[...document.querySelectorAll('.workspace-list i')].map((each) => getComputedStyle(each).backgroundImage)"
    )
    assert (first, "repeating-linear-gradient" in second) == ("none", True)


_TEXTS = """() => {
  window.drawnTexts = [];
  const draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    window.drawnTexts.push(text);
    return draw.call(this, text, ...rest);
  };
}"""


def test_a_log_axis_within_a_decade_has_labels(many: RunningHub, show: Opened) -> None:
    """A log scale from 2.4 to 2.6 is labelled like any other."""
    page = show(many, "runs", fresh=True)
    page.evaluate(_TEXTS)
    turn_to(page, "run/run-05?log=1")
    until(page, "document.querySelector('.chart .chart-plot')?.dataset.drawn > 0")
    until(page, "window.drawnTexts.filter((text) => /^2\\.\\d+$/.test(text)).length >= 2")


def test_the_rates_of_all_rows_are_one_request(many: RunningHub, show: Opened) -> None:
    """`steps/s` of all rows in sight is asked for at once."""
    page = show(many, NO_VIEW, fresh=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    turn_to(page, "runs")
    until(
        page,
        """(() => { const cells = [...document.querySelectorAll(".vt-row")].map((row) => row.children[4].innerText);
            return cells.length > 15 && cells.every((text) => Number(text) > 0); })()""",
    )
    rates = [url for url in asked if re.search(r"goodput|rates", url)]
    assert len(rates) == 1, rates


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_rows_on_a_phone_say_how_a_run_goes(many: RunningHub, show: Opened, theme: str) -> None:
    """On a phone the loss, the findings and the age of a run are in sight, without scrolling aside."""
    page = show(many, "runs", width=390, height=800, theme=theme, fresh=True)
    row = until(
        page,
        """(() => { const row = document.querySelector('.vt-row[data-id="run-23"]'), box = row?.getBoundingClientRect();
            if (!row || !/2\\.42/.test(row.innerText)) return null;
            const shown = [...row.querySelectorAll(".vt-cell *")].filter((each) => !each.children.length
                && each.innerText?.trim() && each.getBoundingClientRect().right <= innerWidth);
            return { texts: shown.map((each) => each.innerText.trim()), wide: row.scrollWidth > innerWidth }; })()""",
    )
    assert "run-23" in row["texts"]
    assert "2.42" in row["texts"]
    assert any(re.search(r"finding|▲|no findings", text) for text in row["texts"]), row
    assert any(text.endswith("ago") for text in row["texts"]), row
    assert not row["wide"]


def test_lines_with_breaks_stay_in_their_row(many: RunningHub, show: Opened) -> None:
    """A log record of several lines takes one row, and its details have all of them."""
    page = show(many, "logs?run=run-01")
    until(page, "document.querySelectorAll('.log-line').length >= 1")
    tall = page.evaluate(
        """[...document.querySelectorAll('.log-line')].filter((row) => [...row.children].some((each) =>
            each.getBoundingClientRect().height > row.getBoundingClientRect().height + 1)).length"""
    )
    assert tall == 0
    page.locator(".log-line", has_text="Traceback").first.click()
    until(page, "/File train.py\\s*\\n\\s*ValueError/.test(document.querySelector('.log-body')?.innerText)")


def test_an_empty_comparison_has_a_title(many: RunningHub, show: Opened) -> None:
    """A comparison without runs says what it is, on the page and in the tab."""
    page = show(many, "run/run-01")
    until(page, "document.title === 'run-01 · Stepscope'")
    turn_to(page, "compare")
    until(page, "document.querySelector('h1')?.innerText === 'Compare'")
    assert page.title() == "Compare · Stepscope"


def test_an_unknown_run_has_a_way_back(many: RunningHub, show: Opened) -> None:
    """The page of a run that does not exist says so, with a link to all runs."""
    page = show(many, "run/nobody", fresh=True)
    until(page, "document.querySelector('.state-title')?.innerText === 'There is no run nobody'")
    page.locator(".state a", has_text="All runs").click()
    until(page, "document.querySelectorAll('.vt-row').length > 10")
    show.forgive("404")


def test_a_run_is_opened_by_its_name(many: RunningHub, show: Opened) -> None:
    """`#/run/NAME` opens the one run of that name with the rest of the address, and offers all of several."""
    for run, name in (("run-12", "alone here"), ("run-13", "twins"), ("run-14", "twins")):
        assert many.request("PATCH", f"/api/runs/{run}", json.dumps({"name": name}).encode(), JSON).status == 200
    page = show(many, "run/alone%20here?tab=overview", fresh=True)
    page.locator("h1", has_text="alone here").wait_for()
    assert page.url.endswith("#/run/run-12?tab=overview")
    turn_to(page, "run/twins")
    until(page, "document.querySelector('.state-title')?.innerText === '2 runs are called twins'")
    look_in_both_themes(page, "a choice of runs")
    page.get_by_role("list", name="Runs of this name").get_by_role("link", name="run-13").click()
    until(page, "location.hash.startsWith('#/run/run-13')")
    show.forgive("404")


def test_groups_on_a_phone_have_names(many: RunningHub, show: Opened) -> None:
    """The row of a group shows its name, how many runs it has, and the mean of the loss, within the window."""
    page = show(many, "runs?group=project", width=390, height=800, fresh=True)
    row = until(
        page,
        """(() => { const row = document.querySelector('.vt-row.heading'), name = row?.querySelector('.wide-name');
            if (!name || !row.querySelector('.spread')) return null;
            const { width, right } = name.getBoundingClientRect();
            return { text: row.innerText, width, fits: right <= innerWidth && name.scrollWidth <= name.clientWidth + 1,
              inside: row.querySelector('.run-two').scrollHeight <= row.clientHeight }; })()""",
    )
    assert re.search(r"many\s+26", row["text"]), row
    assert row["width"] > 20, row
    assert row["fits"], row
    assert row["inside"], row


def test_a_step_of_many_ranks_is_read_in_pages(many: RunningHub, show: Opened) -> None:
    """The summary of all ranks comes with the first page; scrolling brings the others, and a click the rank named."""
    page = show(many, "runs", fresh=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/steps/5" in request.url else None)
    turn_to(page, "run/ranks-70?step=5")
    dialog = page.get_by_role("dialog", name="Step 5")
    everyone = dialog.get_by_role("region", name="All ranks")
    everyone.get_by_role("button", name="rank 69").wait_for()
    assert dialog.locator(".spans thead th").last.inner_text().startswith("rank 69")
    until(
        page,
        """(() => { document.querySelector(".step-part .note .button")?.scrollIntoView();
            return document.querySelectorAll(".lane").length === 70; })()""",
    )
    offsets = [int(re.findall(r"offset=(\d+)", url)[0]) for url in asked]
    assert offsets == [0, 16, 32, 48, 64]
    everyone.get_by_role("button", name="rank 0").click()
    dialog.locator(".lane.at", has_text="rank 0").wait_for()
    assert "rank=0" in asked[-1]
