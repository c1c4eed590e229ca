"""The charts of a run say what is so: pairs that were logged, ghosts of the right rank, what a scale leaves out."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.model.names import EVENT_FINISHED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Alert, Event, Metric, Record, Span
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, turn_to, until
from tests.web.stored import hub_with

START = 1_790_000_000 * 10**9
SECOND = 10**9
LONG = 30_000
AGAIN = 20
ALERTS = 620
RANKS = 4


def _write(made: list[Batch], run: str, values: list[tuple[int, dict[str, Any]]], **who: Any) -> None:
    """One process of a run that logged these values at these steps, a second each, and ended."""
    rank, attempt, begin = who.get("rank", 0), who.get("attempt", 1), who.get("begin", START)
    records: list[Record] = [
        Metric(begin + at * SECOND, step, None, None, each) for at, (step, each) in enumerate(values)
    ]
    records += who.get("more", [])
    end = begin + len(values) * SECOND
    records.append(Event(end, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"}))
    writer = Writer(
        id=f"{run}{rank}-{attempt}",
        run=run,
        project="web",
        rank=rank,
        attempt=attempt,
        wall_ns=begin,
        name=who.get("name"),
    )
    made.append(Batch(writer, 1, records))


def _pairs(made: list[Batch]) -> None:
    """Metrics that never meet, or seldom; one over a small range; one whose name is another axis'."""
    values: list[tuple[int, dict[str, Any]]] = [(n, {("b" if n % 2 else "a"): float(n)}) for n in range(100)]
    values += [(n, {"val": n / 7}) for n in (0, 50)]
    values += [(n, {"lr": 1e-7 * (n + 1), "time": 1000.0 + n, "loss": 1 / (n + 1)}) for n in range(100)]
    _write(made, "pairs", values)
    many: list[tuple[int, dict[str, Any]]] = [(n, {("b" if n % 2 else "a"): n / 2}) for n in range(LONG)]
    many += [(n, {"tokens": n * 8.0}) for n in range(LONG)]
    _write(made, "long", many)
    _write(made, "once", [(7, {"acc": 0.5})], name="name " * 600)


def _again(made: list[Batch]) -> None:
    """Four ranks, each at a height of its own, crash after step 59 and begin again at 40, lower."""
    for rank in range(RANKS):
        first = [(n, {"loss": 10.0 * (rank + 1), "tokens": 1000.0 * n}) for n in range(60)]
        second = [(n, {"loss": 10.0 * (rank + 1) - 5, "tokens": 1000.0 * n}) for n in range(60 - AGAIN, 120)]
        _write(made, "again", first, rank=rank, attempt=1)
        _write(made, "again", second, rank=rank, attempt=2, begin=START + 100 * SECOND)
        wide = [(n, {"loss": float(rank) if n == 1999 else 7.0}) for n in range(2000)]
        _write(made, "wide", wide, rank=rank, begin=START + rank * SECOND // 10)
        few = [(n, {"loss": float(rank)}) for n in range(20)]
        _write(made, "few", few, rank=rank, begin=START + rank * SECOND // 10)


def _scales(made: list[Batch]) -> None:
    """Values of both signs, of none above zero, and as large and small as numbers come."""
    values: list[tuple[int, dict[str, Any]]] = [
        (
            n,
            {
                "mixed": n - 39.5,
                "below": -float(n),
                "edge": 1.7e308 * (-1) ** n,
                "vast": 1e300 * n / 100,
                "tiny": 1e-40 * (n + 1),
            },
        )
        for n in range(100)
    ]
    _write(made, "scales", values)


def _notes(made: list[Batch]) -> None:
    """More alerts than are flagged, and spans that say what their time was good for."""
    names = ("train.step", "train.all_reduce", "train.forward", "train.backward", "train.optimizer_step", "mlp")
    more: list[Record] = [
        Alert(START + n * SECOND, n, None, None, None, 17, f"alert {n}", "", {}) for n in range(ALERTS)
    ]
    more += [
        Span(START + n * SECOND, SECOND, 0, None, b"t" * 16, bytes([n + 1] * 8), None, name)
        for n, name in enumerate(names)
    ]
    lost = {"train.bucket": "wasted"}
    more.append(Span(START + 9 * SECOND, SECOND, 0, None, b"u" * 16, b"w" * 8, None, "replay", attrs=lost))
    _write(made, "noted", [(n, {"loss": 1.0}) for n in range(ALERTS)], more=more)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with these runs."""
    made: list[Batch] = []
    for write in (_pairs, _again, _scales, _notes):
        write(made)
    with hub_with(tmp_path_factory.mktemp("told") / "home", made) as hub:
        yield hub


def _words(page: Any, key: str, wanted: str) -> str:
    """Wait until the foot of a chart says something; its words."""
    foot = f".chart[data-key={json.dumps(key)}] .chart-count"
    words: str = until(
        page,
        f"""(() => {{ const words = document.querySelector({json.dumps(foot)})?.innerText.replaceAll(/,(?=\\d)/g, '');
        return words && words.includes({json.dumps(wanted)}) && words; }})()""",
    )
    return words


def _drawn(page: Any, key: str) -> int:
    plot = page.locator(f'.chart[data-key="{key}"] .chart-plot')
    return int(plot.get_attribute("data-drawn") or 0)


GREY = """(key) => {
  const canvas = document.querySelector(`.chart[data-key="${key}"] canvas`), { width, height } = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const over = canvas.parentNode.querySelector(".u-over");
  const style = getComputedStyle(document.documentElement).getPropertyValue("--ghost").trim();
  const wanted = [1, 3, 5].map((at) => parseInt(style.slice(at, at + 2), 16)), found = [];
  for (let y = over.offsetTop; y < over.offsetTop + over.offsetHeight; y++) {
    let n = 0;
    for (let x = over.offsetLeft; x < over.offsetLeft + over.offsetWidth; x++) {
      const at = (y * width + x) * 4;
      if (data[at + 3] > 90 && wanted.every((part, k) => Math.abs(data[at + k] - part) < 12)) n++;
    }
    found.push(n);
  }
  return found;
}"""
"""How many pixels of a ghost's colour are in each row of a chart."""


def test_only_steps_with_both_metrics_are_drawn(told: RunningHub, show: Opened) -> None:
    """Even and odd steps never meet; of fifty points two are at steps that the other has too."""
    page = show(told, "run/pairs?x=b")
    page.locator('.chart[data-key="a"]').get_by_text("No step has both this and b").wait_for()
    assert _words(page, "a", "shown") == "0 points, 0 shown, 50 without x"
    assert _drawn(page, "a") == 0
    turn_to(page, "run/pairs?x=val")
    assert _words(page, "a", "shown") == "2 points, 2 shown, 48 without x"
    turn_to(page, "run/pairs?x=a")
    assert _words(page, "val", "shown") == "2 points, 2 shown"


def test_one_point_under_a_name_of_any_length_is_in_sight(told: RunningHub, show: Opened) -> None:
    """Three lines of the name are shown, also on a phone, and all of it to the pointer."""
    page = show(told, "run/once?tab=charts", width=390, height=844)
    assert _words(page, "acc", "shown") == "1 point, 1 shown"
    heading = page.locator("h1")
    assert heading.get_attribute("title") == "name " * 600
    assert heading.bounding_box()["height"] < 100
    assert page.locator("nav.tabs").bounding_box()["y"] < 500


def test_more_steps_than_marks_are_paired_where_it_is_sure(told: RunningHub, show: Opened) -> None:
    """Of thirty thousand steps those that meet are drawn, and none that do not; a zoom reads every step."""
    page = show(told, "run/long?x=b")
    page.locator('.chart[data-key="a"]').get_by_text("No step has both this and b").wait_for()
    turn_to(page, "run/long?x=tokens")
    _words(page, "a", "15000 points, ")
    turn_to(page, "run/long?x=tokens&from=80000&to=80792")
    assert _words(page, "a", "shown") == "50 points, 50 shown"
    assert _words(page, "tokens", "shown") == "100 points, 100 shown"


def test_a_zoom_over_small_numbers_keeps_them_apart(told: RunningHub, show: Opened) -> None:
    """The ends of the range have the figures that they need, and half of the points are there."""
    page = show(told, "run/pairs?x=lr&q=loss")
    _words(page, "loss", "100 points, 100 shown")
    page.locator('.chart[data-key="loss"] .chart-plot').press("+")
    until(page, "/from=/.test(location.hash)")
    ends = [float(part.split("=")[1]) for part in page.url.split("&") if part.startswith(("from", "to"))]
    assert ends == pytest.approx([25.75e-7, 75.25e-7], rel=1e-3)
    _words(page, "loss", "50 points, 50 shown")


def test_a_metric_can_be_called_as_an_axis_is(told: RunningHub, show: Opened) -> None:
    """The metric `time` is chosen from the list, drawn over, and distinct from wall time in the address."""
    page = show(told, "run/pairs?q=loss")
    _words(page, "loss", "100 points")
    page.locator(".controls select").first.select_option(label="time (metric)")
    until(page, "location.hash.includes('x=metric%3Atime')")
    _words(page, "loss", "100 points, 100 shown")
    page.locator('.chart[data-key="loss"] .chart-plot').press("Home")
    until(page, "/^1.?000 /.test(document.querySelector('.chart-readout').innerText)")


@pytest.mark.parametrize("x", ["step", "relative", "time", "tokens"])
def test_what_was_done_again_is_grey_on_every_axis(told: RunningHub, show: Opened, x: str) -> None:
    """The footer counts it and it is drawn, of the rank that is shown and of no other."""
    page = show(told, f"run/again?rank=3&q=loss&x={x}")
    _words(page, "loss", f"{AGAIN} superseded")
    # Rank 3 had 40 and has 35; the mean of all ranks was 25, which is below everything in the chart.
    until(page, f"({GREY})('loss').some((n) => n > 15)")
    rows = page.evaluate(GREY, "loss")
    grey = [at for at, n in enumerate(rows) if n > 15]
    assert max(grey) < 0.2 * len(rows)


def test_a_log_scale_tells_what_it_leaves_out(told: RunningHub, show: Opened) -> None:
    """The foot counts values of zero and below, and a chart without any other says so."""
    page = show(told, "run/scales?log=1")
    assert _words(page, "mixed", "hidden") == "100 points, 60 shown, 40 ≤ 0 hidden"
    page.locator('.chart[data-key="below"]').get_by_text("No positive values").wait_for()
    turn_to(page, "run/scales")
    assert _words(page, "mixed", "shown") == "100 points, 100 shown"


INK = """([key, left, right]) => {
  const canvas = document.querySelector(`.chart[data-key="${key}"] canvas`), { width, height } = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const over = canvas.parentNode.querySelector(".u-over");
  const to = left === null ? over.offsetLeft - 4 : over.offsetLeft + right * over.offsetWidth, rows = new Set();
  for (let x = left === null ? 0 : over.offsetLeft + Math.round(left * over.offsetWidth); x < to; x++) {
    for (let y = 0; y < over.offsetTop + over.offsetHeight; y++) {
      const at = (y * width + x) * 4;
      if (data[at + 3] > 120 && (left === null || data[at + 2] - data[at] > 40)) rows.add(y);
    }
  }
  return rows.size / over.offsetHeight;
}"""
"""The share of rows with something in them: the line between two shares of the width, or what is beside the axis."""


@pytest.mark.parametrize("key", ["edge", "vast", "tiny"])
@pytest.mark.parametrize("scale", ["", "&log=1"])
def test_the_largest_and_smallest_numbers_are_drawn(told: RunningHub, show: Opened, key: str, scale: str) -> None:
    """The line goes over the chart and its axis has figures."""
    page = show(told, f"run/scales?q={key}{scale}")
    until(page, f"document.querySelector('.chart[data-key={json.dumps(key)}] .chart-plot')?.dataset.drawn === '100'")
    one = key == "edge" and scale != ""  # of its two values a log scale can show one
    assert page.evaluate(INK, [key, None, None]) > (0.03 if one else 0.15)
    assert page.evaluate(INK, [key, 0, 1]) > (0.01 if one else 0.5)


def test_a_value_between_the_largest_numbers_can_be_read(told: RunningHub, show: Opened) -> None:
    """The cursor finds it."""
    page = show(told, "run/scales?q=edge")
    _words(page, "edge", "100 shown")
    page.locator('.chart[data-key="edge"] .chart-plot').press("End")
    until(page, "document.querySelector('.chart-readout').innerText.includes('-1.7e308')")


def test_the_newest_alerts_are_flagged_and_older_ones_are_mentioned(told: RunningHub, show: Opened) -> None:
    """The last of them has its flag under the cursor; where all are flagged nothing is said."""
    page = show(told, "run/noted?q=loss")
    page.get_by_text("Flags: the newest 500 alerts and events").wait_for()
    _words(page, "loss", "620 points")
    page.locator('.chart[data-key="loss"] .chart-plot').press("End")
    until(page, f"document.querySelector('.chart-readout').innerText.includes('alert {ALERTS - 1}')")
    with page.expect_response("**/api/alerts?run=pairs**"), page.expect_response("**/api/logs?run=pairs**"):
        turn_to(page, "run/pairs?q=loss")
    _words(page, "loss", "100 points")
    page.get_by_text("No problems found").wait_for()
    assert page.get_by_text("Flags: the newest").count() == 0


def test_the_number_in_the_head_is_what_the_line_ends_at(told: RunningHub, show: Opened) -> None:
    """The mean of all ranks at the last step, raw or of many points, over steps and over time."""
    last = ".chart[data-key='loss'] .chart-last"
    page = show(told, "run/again?q=loss")
    until(page, f"document.querySelector({json.dumps(last)})?.innerText === '20'")
    turn_to(page, "run/wide?q=loss")
    until(page, f"document.querySelector({json.dumps(last)})?.innerText === '1.5'")
    assert _words(page, "loss", "8000 points")
    for run in ("few", "wide"):
        turn_to(page, f"run/{run}?q=loss&x=time")
        until(page, f"document.querySelector({json.dumps(last)})?.innerText === '1.5'")


def test_wasted_time_is_what_was_declared(told: RunningHub, show: Opened) -> None:
    """The words beside the share say that only spans with a bucket count there."""
    page = show(told, "run/noted?tab=overview")
    share = page.locator(".goodput-shares li", has_text="wasted")
    share.wait_for()
    assert "train.bucket" in (share.get_attribute("title") or "")


def test_phases_of_a_step_have_colours_of_their_own(told: RunningHub, show: Opened) -> None:
    """Six names, six colours, in the waterfall, in the flame view and in the table of names."""
    page = show(told, f"traces?trace={(b't' * 16).hex()}&view=waterfall")
    bars = "new Set([...document.querySelectorAll('.trace-bar')].map((bar) => bar.style.background)).size"
    until(page, f"document.querySelectorAll('.trace-bar').length === 6 && {bars} === 6")
    turn_to(page, f"traces?trace={(b't' * 16).hex()}&view=names")
    dots = "new Set([...document.querySelectorAll('.trace-dot')].map((dot) => dot.style.background)).size"
    until(page, f"document.querySelectorAll('.trace-dot').length === 6 && {dots} === 6")
    turn_to(page, f"traces?trace={(b't' * 16).hex()}&view=flame")
    page.locator(".trace-flame canvas").wait_for()
    until(
        page,
        """(() => { const canvas = document.querySelector('.trace-flame canvas'), { width, height } = canvas;
        const data = canvas.getContext('2d').getImageData(0, 0, width, height).data, seen = new Map();
        for (let i = 0; i < data.length; i += 4) {
          const [r, g, b, a] = data.slice(i, i + 4), tone = `${r},${g},${b}`;
          if (a > 150 && Math.max(r, g, b) - Math.min(r, g, b) > 30) seen.set(tone, (seen.get(tone) || 0) + 1);
        }
        return [...seen.values()].filter((n) => n > 300).length >= 6; })()""",
    )
