"""Charts tell the truth: every spike, every NaN, how much is shown, and the step behind a point."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from stepscope.hub.store.engine import Engine
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, turn_to, until
from tests.web.stored import hub_with
from tests.web.training import NAN, NAN_RANK, SPIKE, SPIKE_RANK

MILLION = 1_000_000
LONE_SPIKE = 654_321
START = 1_790_000_000 * 10**9


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with a run of a million points, one of which is a spike, and smaller runs.

    One has 200 metrics, one begins at step a million, one has more points than a chart has pixels.
    """
    layers = ((step, {f"layer{n:03d}/norm": n + step / 10 for n in range(200)}) for step in range(100))
    few = ((MILLION + n, {"loss": float(n), "zero": 0.0}) for n in range(20))
    long = ((n, {"loss": 7.5 if n == 4999 else float(n % 2)}) for n in range(5000))
    ends = ((0, {"loss": 1.0}), (MILLION - 1, {"loss": 1.0}))
    copied = [(0, {"stepscope/overhead/total": 0.03, "stepscope/overhead/copies": 0.026})]
    runs = {"million": ends, "many": layers, "late": few, "long": long, "copied": copied}
    batches = [_batch(run, 1, points, last=True) for run, points in runs.items()]
    with hub_with(tmp_path_factory.mktemp("million") / "home", batches, _fill_up) as hub:
        yield hub


def _fill_up(engine: Engine) -> None:
    """Store the points between the first and the last of the million by SQL, which is faster than as records."""
    points = f"""SELECT series, number + 1 AS step, {START} + step * 50000000 AS time, 1 AS attempt, commit,
        if(step = {LONE_SPIKE}, 1e6, 1 + step % 97 / 970) AS value
        FROM numbers({MILLION - 2}) AS counted
        CROSS JOIN (SELECT series, commit FROM metrics WHERE step = {MILLION - 1}) AS known"""
    columns = "series, step, time, attempt, commit, value"
    engine.execute(f"INSERT INTO metrics ({columns}) SELECT {columns} FROM ({points})")
    engine.execute(
        f"""INSERT INTO totals_in SELECT series, attempt, count(), 0, min(step), max(step), min(time), max(time),
        min(value), max(value), argMax(value, step), max(step), max(time) FROM ({points}) GROUP BY series, attempt"""
    )


def _batch(run: str, seq: int, points: Iterable[tuple[int, dict[str, Any]]], *, last: bool) -> Batch:
    """Points of a run, 50 ms apart; the last batch ends it."""
    records: list[Record] = [
        Metric(START + step % MILLION * 50 * 10**6, step, None, None, values) for step, values in points
    ]
    if last:
        records.append(Event(records[-1].time, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"}))
    return Batch(Writer(id=run, run=run, project="web", wall_ns=START), seq, records)


PIXELS = """(key) => {
  const card = document.querySelector(`.chart[data-key="${key}"]`), canvas = card?.querySelector("canvas");
  if (!canvas || !(Number(card.querySelector(".chart-plot").dataset.drawn) > 0)) return null;
  const { width, height } = canvas, data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const style = getComputedStyle(document.documentElement).getPropertyValue("--series-1").trim();
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(style.slice(at, at + 2), 16));
  const found = [];
  for (let x = 0; x < width; x++) {
    for (let y = 0; y < height; y++) {
      const at = (y * width + x) * 4, blue = data[at + 2] - data[at];
      if (data[at + 3] > 40 && blue > 40 && data[at] < 220) { found.push([x, y]); break; }
    }
  }
  return { width, height, top: found };
}"""
"""The uppermost pixel of the line's colour in each column of a chart."""


def top_of(page: Any, key: str) -> dict[str, Any]:
    """Wait until a chart is drawn, then tell where its line is."""
    until(page, f"document.querySelector('.chart[data-key={json.dumps(key)}] .chart-plot')?.dataset.drawn > 0")
    found: dict[str, Any] = page.evaluate(PIXELS, key)
    return found


def test_one_spike_in_a_million_points_is_drawn(stored: RunningHub, show: Opened) -> None:
    """Its pixels reach the top of the chart where it belongs, and the chart says how many points there are."""
    page = show(stored, "run/million")
    drawn = top_of(page, "loss")
    highest = min(y for _, y in drawn["top"])
    spike = [x for x, y in drawn["top"] if y <= highest + 2]
    others = [y for x, y in drawn["top"] if abs(x - spike[0]) > 6]
    assert highest < drawn["height"] * 0.2
    assert min(others) > drawn["height"] * 0.6
    plot = page.evaluate(
        "(() => { const o = document.querySelector('.u-over'); return [o.offsetLeft, o.offsetWidth]; })()"
    )
    place = (sum(spike) / len(spike) - plot[0]) / plot[1]
    assert place == pytest.approx(LONE_SPIKE / MILLION, abs=0.01)
    words = re.sub(r",(?=\d)", "", page.locator('.chart[data-key="loss"] .chart-count').inner_text())
    assert words.startswith("1000000 points, ")
    assert int(words.split(", ")[1].split()[0]) <= 1600


def test_click_on_the_spike_of_a_million_opens_its_step(stored: RunningHub, show: Opened) -> None:
    """A mark stands for hundreds of steps; the one that is opened is the spike's."""
    page = show(stored, "run/million")
    drawn = top_of(page, "loss")
    x, y = min(drawn["top"], key=lambda place: place[1])
    page.locator('.chart[data-key="loss"] canvas').hover(position={"x": x, "y": y + 1}, force=True)
    page.mouse.down()
    page.mouse.up()
    page.get_by_role("dialog").get_by_text("1e6").first.wait_for()
    assert f"step={LONE_SPIKE}" in page.url


def test_zoom_reads_every_point_again(stored: RunningHub, show: Opened) -> None:
    """Within a small range each point is a mark of its own."""
    page = show(stored, f"run/million?from={LONE_SPIKE - 100}&to={LONE_SPIKE + 99}")
    top_of(page, "loss")
    until(page, "/^200 points, 200 shown/.test(document.querySelector('.chart-count').innerText)")


_END = """(() => { const main = document.querySelector("main");
  if (main.scrollTop + main.clientHeight < main.scrollHeight - 1) main.scrollTop = main.scrollHeight;
  return document.querySelector('.chart[data-key="layer199/norm"] .chart-plot')?.dataset.drawn > 0; })()"""
_FLUNG = """async () => { const main = document.querySelector("main"), made = new Set();
  const most = { charts: 0, canvases: 0 };
  for (let top = 0; top < main.scrollHeight - main.clientHeight; top += main.clientHeight) {
    main.scrollTop = top;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const charts = document.querySelectorAll(".chart"), canvases = document.querySelectorAll(".chart canvas");
    charts.forEach((each) => made.add(each.dataset.key));
    most.charts = Math.max(most.charts, charts.length);
    most.canvases = Math.max(most.canvases, canvases.length);
  }
  return { ...most, made: made.size }; }"""


def test_two_hundred_series_stay_lazy(stored: RunningHub, show: Opened) -> None:
    """Only charts near the window are there, and fewer have a canvas; scrolling to the end draws the last."""
    page = show(stored, "run/many")
    top_of(page, "layer000/norm")
    few = "Math.max(...['', ' canvas'].map((each) => document.querySelectorAll('.chart' + each).length)) < 60"
    assert page.evaluate(few)
    until(page, _END)
    assert page.evaluate(few)


def test_charts_that_are_flung_past_are_not_made(stored: RunningHub, show: Opened) -> None:
    """Scrolled by a window a frame, the page makes no chart on the way, and draws those where it comes to rest."""
    page = show(stored, "run/many")
    top_of(page, "layer000/norm")
    flung = page.evaluate(_FLUNG)
    assert flung["charts"] < 60
    assert flung["canvases"] < 60
    assert flung["made"] < 100  # of 200: those of the start, and of frames that the machine let rest
    until(page, _END)


def test_a_chart_without_values_has_no_canvas(stored: RunningHub, show: Opened) -> None:
    """A window without points says so without a canvas; one with points draws the same chart."""
    page = show(stored, f"run/late?from={MILLION + 30}&to={MILLION + 40}", fresh=True)
    until(page, "document.querySelector('.chart[data-key=loss] .chart-note')?.innerText === 'No points in this range'")
    assert page.locator('.chart[data-key="loss"] canvas').count() == 0
    turn_to(page, "run/late")
    until(page, "document.querySelector('.chart[data-key=loss] .chart-plot').dataset.drawn > 0")
    assert page.locator('.chart[data-key="loss"] canvas').count() == 1


def test_nan_is_marked(trained: RunningHub, show: Opened) -> None:
    """The chart has a sign where the value was not a number, a word for it, and the sign's pixels."""
    page = show(trained, "run/four-ranks?q=trainer/margin")
    top_of(page, "trainer/margin")
    card = page.locator('.chart[data-key="trainer/margin"]')
    assert card.locator(".chart-plot").get_attribute("data-nonfinite") == "1"
    assert card.locator(".chart-flag").inner_text() == "NaN"
    red = page.evaluate(
        """() => { const canvas = document.querySelector('.chart[data-key="trainer/margin"] canvas');
        const { width, height } = canvas, lower = height * 0.7;
        const data = canvas.getContext("2d").getImageData(0, lower, width, height - lower).data;
        let n = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && data[i] - data[i + 1] > 90) n++;
        return n; }"""
    )
    assert red > 20


def test_click_on_a_spike_opens_its_step_on_its_rank(trained: RunningHub, show: Opened) -> None:
    """Of four ranks the one that spiked is named, with the value, the log of that step and the alert."""
    page = show(trained, "run/four-ranks?q=trainer/loss")
    drawn = top_of(page, "trainer/loss")
    x, y = min(drawn["top"], key=lambda place: place[1])
    page.locator('.chart[data-key="trainer/loss"] canvas').hover(position={"x": x, "y": y + 2}, force=True)
    page.mouse.down()
    page.mouse.up()
    dialog = page.get_by_role("dialog", name=f"Step {SPIKE}")
    dialog.get_by_text("trainer/loss spiked to 41.5").wait_for()
    dialog.get_by_text("corrupt shard").first.wait_for()
    dialog.get_by_text("loss spike").first.wait_for()
    assert f"step={SPIKE}&at={SPIKE_RANK}" in page.url


def test_click_on_a_nan_opens_its_step_on_its_rank(trained: RunningHub, show: Opened) -> None:
    """The sign at the edge is as good as a point."""
    page = show(trained, "run/four-ranks?q=trainer/margin")
    top_of(page, "trainer/margin")
    place = page.evaluate(
        f"""(() => {{ const over = document.querySelector('.chart[data-key="trainer/margin"] .u-over');
        const o = over.getBoundingClientRect(); return [o.left + o.width * {NAN} / 299, o.bottom - 8]; }})()"""
    )
    page.mouse.move(*place)
    page.mouse.down()
    page.mouse.up()
    page.get_by_role("dialog").get_by_text("trainer/margin became NaN").wait_for()
    assert f"step={NAN}&at={NAN_RANK}" in page.url


def test_log_scale_is_true_below_one(trained: RunningHub, show: Opened) -> None:
    """A value of 3e-4 that halves goes down by the same way as any other that halves."""
    page = show(trained, "run/four-ranks?log=1&q=trainer/lr")
    drawn = top_of(page, "trainer/lr")
    by_column = dict(drawn["top"])
    over = page.evaluate(
        "(() => { const o = document.querySelector('.u-over'); return [o.offsetLeft, o.offsetWidth]; })()"
    )

    def height(step: int) -> int:
        column = round(over[0] + over[1] * step / 299)
        return min(y for x, y in by_column.items() if abs(x - column) <= 1)

    # The warm-up is linear: 5, 10, 20, 40 are each twice the one before, up to the slow decay over them.
    first, second = height(5) - height(10), height(10) - height(20)
    assert first == pytest.approx(second, abs=4)
    assert first > 5


def test_ranks_one_by_one_and_attempts_in_grey(trained: RunningHub, show: Opened) -> None:
    """Each rank can have its own line, and what a later attempt did again is counted."""
    page = show(trained, "run/four-ranks?rank=each&q=trainer/loss")
    top_of(page, "trainer/loss")
    until(page, "document.querySelectorAll('.chart-legend span').length === 4")
    until(page, "/80 superseded/.test(document.querySelector('.chart-count').innerText)")


def test_x_can_be_time_or_another_metric(trained: RunningHub, show: Opened) -> None:
    """The same points are drawn over the wall clock, the time since the start, or tokens."""
    page = show(trained)
    for x in ("time", "relative", "trainer/tokens"):
        turn_to(page, f"run/four-ranks?x={x}&q=trainer/loss")
        assert len(top_of(page, "trainer/loss")["top"]) > 200, x


def test_a_line_of_zeros_is_drawn(stored: RunningHub, show: Opened) -> None:
    """As one level line inside its chart, from the first step to the last."""
    page = show(stored, "run/late?q=zero")
    drawn = top_of(page, "zero")
    assert len(drawn["top"]) > 200
    heights = [y for _, y in drawn["top"]]
    assert max(heights) - min(heights) < 4
    assert 0 < min(heights) <= max(heights) <= drawn["height"]


def test_the_last_value_is_the_last_point(stored: RunningHub, show: Opened) -> None:
    """Not the mean of the last stretch of steps."""
    page = show(stored, "run/long")
    top_of(page, "loss")
    card = page.locator('.chart[data-key="loss"]')
    assert int(re.sub(r",(?=\d)", "", card.locator(".chart-count").inner_text()).split(", ")[1].split()[0]) < 5000
    assert card.locator(".chart-last").inner_text() == "7.5"


def test_steps_a_second_are_of_the_steps_that_were_made(stored: RunningHub, show: Opened) -> None:
    """A run from step a million on shows twenty steps in 0.95 s: in its head, its goodput and the table of runs."""
    page = show(stored, "run/late?tab=overview")
    page.get_by_role("region", name="Goodput").get_by_text("21.1 steps/s").wait_for()
    assert page.locator(".facts div", has_text="steps/s").inner_text().split() == ["steps/s", "21.1"]
    turn_to(page, "runs")
    page.locator('.vt-row[data-id="late"]').get_by_text("21.1", exact=True).wait_for()


def test_the_overview_shows_what_stepscope_took(trained: RunningHub, show: Opened) -> None:
    """The total comes first, then the parts, each as a share of the time of a process."""
    page = show(trained, "run/four-ranks?tab=overview")
    rows = page.get_by_role("region", name="Table of overhead").locator("tbody tr")
    rows.first.wait_for()
    shown = [row.split("\t") for row in rows.all_inner_texts()]
    assert shown[0][0] == "total"
    assert {"calls", "flusher"} <= {name for name, *_ in shown}
    assert all(share.endswith("%") for _, *shares in shown for share in shares)


def test_the_overview_says_how_copies_are_avoided(stored: RunningHub, trained: RunningHub, show: Opened) -> None:
    """Where they took more than the budget; else it says nothing of them."""
    panel = show(stored, "run/copied?tab=overview").get_by_role("region", name="Table of overhead")
    panel.get_by_text("Copying logged arrays took up to 2.6 % of the time.").wait_for()
    panel.get_by_text("Image(array, copy=False)").wait_for()
    panel = show(trained, "run/four-ranks?tab=overview").get_by_role("region", name="Table of overhead")
    panel.locator("tbody tr").first.wait_for()
    assert panel.get_by_text("Copying logged arrays").count() == 0


def test_an_axis_that_is_no_metric_is_explained(trained: RunningHub, show: Opened) -> None:
    """The page says why nothing is drawn, and links back."""
    page = show(trained, "run/four-ranks?x=nokey&q=trainer/loss")
    page.get_by_text("This run has no metric nokey").wait_for()
    page.get_by_role("button", name="Use steps").click()
    assert len(top_of(page, "trainer/loss")["top"]) > 200
