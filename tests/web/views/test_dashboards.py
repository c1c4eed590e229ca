"""Dashboards in the browser: the built-in ones show the right run, one's own is written, kept, mended and deleted."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Span
from tests.hub.conftest import RunningHub
from tests.web.conftest import turn_to, until
from tests.web.looks import look_in_both_themes
from tests.web.views import recorded
from tests.web.views.conftest import World
from tests.web.views.recorded import RUN

OWN = """title: Mine
charts:
  - title: Rewards
    keys: ["*reward_mean"]
"""


def test_rl_layout(world: World, show: Any) -> None:
    """The charts of the layout are there in order, drawn from the RL run, with the bands of KL."""
    page = show(world.hub, "dashboards/rl")
    until(page, "document.querySelectorAll('.chart-plot[data-drawn]').length >= 6")
    titles = page.locator(".dash-grid h3").evaluate_all("(all) => all.map((each) => each.firstChild.textContent)")
    wanted = ["Training loss", "Learning rate", "KL divergence", "Clip fraction", "GPU utilisation", "Queue depth"]
    assert titles[:6] == wanted
    assert page.get_by_placeholder("cartpole").count() == 1
    until(page, "document.querySelector('.chart[aria-label=\"GPU utilisation\"] [data-drawn]')?.dataset.drawn > 0")
    page.locator(".chart[aria-label^='Forward-backward']").scroll_into_view_if_needed()
    legend = "document.querySelector('.chart[aria-label^=\"Forward-backward\"] .chart-legend')"
    until(page, f"{legend}?.innerText.includes('p99')")
    until(page, "document.querySelector('.chart[aria-label^=\"Forward-backward\"] .chart-plot')?.dataset.drawn > 0")


def test_bands_are_drawn(world: World, show: Any) -> None:
    """KL's critical band colours the chart behind the line where the values reach it."""
    page = show(world.hub, f"dashboards/rl?run={RUN}")
    until(page, "document.querySelector('.chart[aria-label=\"KL divergence\"] .chart-plot')?.dataset.drawn > 0")
    shades = page.evaluate(
        """() => { const canvas = document.querySelector('.chart[aria-label="KL divergence"] canvas');
        const pen = canvas.getContext('2d'), seen = new Set();
        const shade = (y) => pen.getImageData(canvas.width - 130, y, 1, 1).data.join();
        for (let y = 12; y < canvas.height - 30; y += 3) seen.add(shade(y));
        return seen.size; }"""
    )
    assert shades >= 3


def test_service_shows_histograms(world: World, show: Any) -> None:
    """Recorded histograms are drawn as quantiles, for the run that has them, which is found by itself."""
    page = show(world.hub, "dashboards/service")
    chart = page.locator(".chart[aria-label^='Sampling duration']")
    chart.wait_for()
    until(page, "document.querySelector('.chart[aria-label^=\"Sampling duration\"] .chart-plot')?.dataset.drawn > 0")
    assert page.get_by_placeholder("service").count() == 1
    assert "duration p50" in chart.inner_text()
    assert "Not in this run" in page.locator(".dash-left").inner_text()


def test_a_custom_dashboard_is_saved(world: World, show: Any) -> None:
    """YAML becomes charts while one writes, is kept in the home folder, opens again, and can be deleted."""
    page = show(world.hub, f"dashboards?new=1&edit=1&run={RUN}", fresh=True)
    area = page.get_by_label("The dashboard as YAML")
    area.fill(OWN)
    page.locator(".chart[aria-label='Rewards']").wait_for()
    page.get_by_label("Name", exact=True).fill("mine")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Mine").wait_for()
    assert (world.hub.home / "dashboards" / "mine.yaml").read_text() == OWN
    page.goto(f"{world.hub.url}/#/dashboards/mine?run={RUN}&edit=1")
    again = page.get_by_label("The dashboard as YAML")
    again.wait_for()
    assert again.input_value() == OWN
    again.fill(OWN + "  - title: Entropy\n    keys: ['*entropy']\n")
    page.locator(".chart[aria-label='Entropy']").wait_for()
    page.keyboard.press("Control+s")
    until(page, "!location.hash.includes('edit=1')")
    assert "Entropy" in (world.hub.home / "dashboards" / "mine.yaml").read_text()
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("button", name="Delete…").click()
    asked = page.get_by_role("dialog", name="Delete the dashboard mine?")
    asked.get_by_role("button", name="Cancel").click()
    assert (world.hub.home / "dashboards" / "mine.yaml").exists()
    page.get_by_role("button", name="Delete…").click()
    asked.wait_for()
    look_in_both_themes(page, "the question before a dashboard is deleted")
    asked.get_by_role("button", name="Delete", exact=True).click()
    until(page, "!location.hash.includes('mine')")
    assert not (world.hub.home / "dashboards" / "mine.yaml").exists()


def test_a_report_has_text_and_charts_of_several_runs(world: World, show: Any) -> None:
    """A report is a dashboard of Markdown: its charts are of the runs that a filter picks; a wrong one is said."""
    page = show(world.hub, "dashboards", fresh=True)
    page.get_by_role("link", name="+ Report").click()
    area = page.get_by_label("The dashboard as YAML")
    until(page, "document.querySelector('textarea')?.value.startsWith('title: My report')")
    key = world.ask(f"/api/runs/{RUN}/keys")["keys"][0]["key"]
    block = f"  ```chart\n  {key}\n  where: status in (running, finished, failed, crashed, stalled)\n  ```\n"
    wrong = "  ```chart\n  lr\n  where: status ==== 3\n  ```\n"
    area.fill(f"title: Tried\ntext: |\n  # Which one?\n\n  **This** one.\n\n{block}\n{wrong}charts: []\n")
    page.get_by_role("heading", name="Which one?").wait_for()
    until(page, f"document.querySelector('.dash-report .chart[data-key=\"{key}\"] .chart-plot')?.dataset.drawn > 0")
    page.locator(".dash-report .chart[data-key=lr]").scroll_into_view_if_needed()
    until(page, "document.querySelector('.dash-report .chart[data-key=lr] .chart-note.bad-text') !== null")
    assert page.locator(".dash-grid, .dash-none").count() == 0
    page.get_by_label("Name", exact=True).fill("tried")
    page.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Tried").wait_for()
    until(page, f"document.querySelector('.dash-report .chart[data-key=\"{key}\"] .chart-plot')?.dataset.drawn > 0")
    show.forgive("400")


def test_a_form_adds_a_chart(world: World, show: Any) -> None:
    """A chart of metrics and an expression is added to the text, and is drawn at once."""
    page = show(world.hub, f"dashboards?new=1&edit=1&run={RUN}", fresh=True)
    page.get_by_label("The dashboard as YAML").fill(OWN)
    page.locator(".chart[aria-label='Rewards']").wait_for()
    key = page.evaluate(
        "fetch('api/runs/' + location.hash.split('run=')[1] + '/keys').then((found) => found.json())"
        ".then(({ keys }) => keys.find(({ first_step }) => first_step !== null).key)"
    )
    page.get_by_role("button", name="Add a chart").click()
    page.get_by_label("Metrics", exact=True).fill(key)
    page.get_by_label("Expression", exact=True).fill(f"2 * {{{key}}}")
    page.get_by_label("Title", exact=True).fill("Twice")
    page.get_by_role("button", name="Add to the text").click()
    wanted = f'{OWN}  - title: "Twice"\n    keys: ["{key}"]\n    expressions: ["2 * {{{key}}}"]\n'
    assert page.get_by_label("The dashboard as YAML").input_value() == wanted
    until(page, "document.querySelector('.chart[aria-label=\"Twice\"] .chart-plot')?.dataset.drawn > 0")
    until(page, "document.querySelector('.chart[aria-label=\"Twice\"] .chart-legend')?.innerText.includes('2 * {')")


def test_charts_are_put_in_order(world: World, show: Any) -> None:
    """A chart that is dragged or moved by a key moves in the text, with its comment, and the preview follows."""
    page = show(world.hub, f"dashboards?new=1&edit=1&run={RUN}", fresh=True)
    text = page.get_by_label("The dashboard as YAML")
    text.fill(f'{OWN}\n  # the loss\n  - title: Loss\n    keys: ["*loss"]\n')
    titles = "[...document.querySelectorAll('.dash-grid .chart')].map((each) => each.ariaLabel).join()"
    until(page, f"{titles} === 'Rewards,Loss'")
    page.locator(".chart[aria-label='Loss'] .grip button").focus()
    page.keyboard.press("ArrowLeft")
    until(page, f"{titles} === 'Loss,Rewards'")
    wanted = 'title: Mine\ncharts:\n\n  # the loss\n  - title: Loss\n    keys: ["*loss"]\n  - title: Rewards\n'
    assert text.input_value() == f'{wanted}    keys: ["*reward_mean"]\n'
    until(page, "document.activeElement.closest('.chart')?.ariaLabel === 'Loss'")
    page.locator(".chart[aria-label='Loss']").scroll_into_view_if_needed()
    grip, other = (
        page.locator(f".chart[aria-label='{name}'] {part}").bounding_box()
        for name, part in (("Loss", ".grip button"), ("Rewards", ".chart-plot"))
    )
    page.mouse.move(grip["x"] + 5, grip["y"] + 5)
    page.mouse.down()
    page.mouse.move(other["x"] + other["width"] - 20, other["y"] + 20, steps=4)
    page.mouse.up()
    until(page, f"{titles} === 'Rewards,Loss'")
    text.fill('title: Mine\ncharts: [{title: A, keys: ["*loss"]}, {title: B, keys: ["*reward_mean"]}]\n')
    until(page, f"{titles} === 'A,B'")
    page.locator(".dash-grid .grip button").first.focus()
    page.keyboard.press("End")
    page.get_by_text("not lines of their own").wait_for()


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("title: A\ncharts:\n  - title: [\n", 4, "expected"),
        ("title: A\ncharts:\n  - title: B\n    keyz: [a]\n", 4, "keyz"),
        ("title: A\ncharts:\n  - keys: [a]\n    scale: logg\n", 4, "logg"),
    ],
)
def test_mistakes_are_shown_in_place(world: World, show: Any, text: str, line: int, word: str) -> None:
    """A mistake is said with its line, the line is marked, and it cannot be kept."""
    page = show(world.hub, f"dashboards?new=1&edit=1&run={RUN}")
    page.get_by_label("Name", exact=True).fill("wrong")
    page.get_by_label("The dashboard as YAML").fill(text)
    page.locator("#dash-mistake.bad-text").wait_for()
    said = page.locator("#dash-mistake").inner_text()
    assert said.startswith(f"Line {line}:")
    assert word in said
    assert page.locator(".dash-gutter .wrong").inner_text() == str(line)
    assert page.get_by_role("button", name="Save").is_disabled()


def test_a_broken_file_is_reported(world: World, show: Any) -> None:
    """A file that someone broke by hand is listed as wrong and can be mended."""
    folder = world.hub.home / "dashboards"
    folder.mkdir(exist_ok=True)
    (folder / "broken.yaml").write_text("title: [")
    try:
        page = show(world.hub, "dashboards/broken")
        page.get_by_text("This dashboard cannot be read").wait_for()
        page.get_by_role("button", name="Edit it").click()
        page.get_by_label("The dashboard as YAML").wait_for()
    finally:
        (folder / "broken.yaml").unlink()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[World]:
    """A hub without a run."""
    hub = RunningHub(tmp_path / "home").start()
    yield World(hub, "")
    hub.kill()


def plain_run(run: str) -> Batch:
    """A run with a loss and a span, as any has."""
    now = time.time_ns()
    span = Span(now, 10**6, 1, None, b"first-of-its-day", run.encode().ljust(8)[:8], None, "train.step")
    return Batch(
        Writer(id=run, run=run, project="p", wall_ns=now),
        1,
        [Metric(now, 1, None, None, {"signal.training.loss": 1.0}), span],
    )


def test_the_run_with_the_metrics_is_found_behind_many(empty: World, show: Any) -> None:
    """Without a run in the address the newest that has what a dashboard shows is drawn, however many came since."""
    empty.send(recorded.rl_run(time.time_ns() - 3600 * 10**9))
    empty.hub.wait_stored("native", 1)
    empty.send([plain_run(f"other-{at}") for at in range(20)])
    empty.hub.wait_stored("native", 21)
    page = show(empty.hub)
    for dashboard in ("rl", "system"):
        turn_to(page, f"dashboards/{dashboard}")
        page.get_by_placeholder("cartpole").wait_for()
        until(page, "document.querySelectorAll('.chart-plot[data-drawn]').length >= 1")


def test_a_first_run_is_noticed(empty: World, show: Any) -> None:
    """Dashboards and traces left open on an empty hub show the first run and its first span when they come."""
    board, traces = show(empty.hub, "dashboards/rl"), show(empty.hub, "traces")
    board.get_by_text("No runs yet").wait_for()
    traces.get_by_text("No spans yet").first.wait_for()
    empty.send([plain_run("pioneer")])
    board.get_by_placeholder("pioneer").wait_for()
    until(board, "document.querySelectorAll('.chart-plot[data-drawn]').length >= 1")
    traces.locator(".vt-row").first.wait_for()
    traces.locator(".trace-names button", has_text="train.step").wait_for()


def test_the_zoom_is_in_the_address(world: World, show: Any) -> None:
    """A range chosen by dragging is in the address, a page opened with it shows it, and a double click leaves it."""
    page = show(world.hub, f"dashboards/rl?run={RUN}")
    loss = ".chart[aria-label='Training loss'] .u-over"
    until(page, f"document.querySelector({loss!r})")
    until(page, "document.querySelectorAll('.chart-plot[data-drawn]').length >= 3")
    drawn = "Number(document.querySelector('.chart[aria-label=\"Training loss\"] .chart-plot')?.dataset.drawn)"
    whole = until(page, drawn)
    box = page.locator(loss).bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40, steps=4)
    page.mouse.up()
    until(page, "/from=\\d+&to=\\d+/.test(location.hash)")
    until(page, f"{drawn} > 0 && {drawn} < {whole} / 2")
    turn_to(page, page.url.split("#/")[1])
    until(page, f"{drawn} > 0 && {drawn} < {whole} / 2")
    page.locator(loss).dblclick()
    until(page, "!location.hash.includes('from=')")
    until(page, f"{drawn} === {whole}")


@pytest.mark.parametrize("by", ["Escape", "Close"])
def test_what_was_written_is_not_thrown_away(world: World, show: Any, by: str) -> None:
    """Leaving the editor with something written asks first; with nothing written it does not."""
    page = show(world.hub, f"dashboards/rl?edit=1&run={RUN}", fresh=True)
    area = page.get_by_label("The dashboard as YAML")
    asked = page.get_by_role("dialog", name="Discard unsaved changes?")

    def leave() -> None:
        if by == "Close":
            page.get_by_role("button", name="Close").click()
        else:
            area.press("Escape")

    area.fill(OWN)
    leave()
    asked.wait_for()
    assert page.evaluate("document.activeElement.innerText") == "Keep editing"
    look_in_both_themes(page, "the question before an editor closes")
    page.keyboard.press("Escape")
    asked.wait_for(state="detached")
    assert area.input_value() == OWN
    if by == "Escape":
        assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    leave()
    asked.get_by_role("button", name="Discard").click()
    area.wait_for(state="detached")
    page.get_by_role("button", name="Customize").click()
    area.wait_for()
    leave()
    area.wait_for(state="detached")
    assert asked.count() == 0
