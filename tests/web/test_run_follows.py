"""What a run's page says of a run that goes on is so a little later too: findings, and lines over another metric."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, until, wait_for

BEFORE = 120


@pytest.fixture
def going(tmp_path: Path) -> Iterator[tuple[RunningHub, Any]]:
    """A hub and a run that has begun, without anything that stands out."""
    run = stepscope.init(project="web", name="going", run_id="going", home=tmp_path / "home", probes=False)
    _log(run, 0, BEFORE)
    run.flush()
    hub = RunningHub(tmp_path / "home").start()
    wait_for(lambda: hub.request("GET", "/api/runs/going").status == 200)
    yield hub, run
    run.finish()
    hub.kill()


def _log(run: Any, first: int, last: int) -> None:
    for step in range(first, last):
        run.log({"loss": 1 + (step % 7) / 100, "tokens": step * 10.0}, step=step, category="trainer")


def test_what_goes_wrong_is_said_without_an_alert(going: tuple[RunningHub, Any], show: Opened) -> None:
    """A spike and a NaN of a run that goes on are found, though no event tells of them."""
    hub, run = going
    page = show(hub, "run/going")
    page.get_by_text("Nothing stands out in this run").wait_for()
    run.log({"loss": 900.0}, step=BEFORE, category="trainer")
    run.log({"margin": math.nan}, step=BEFORE, category="trainer")
    _log(run, BEFORE + 1, 2 * BEFORE)
    run.flush()
    page.get_by_role("button", name="trainer/margin").first.wait_for()
    page.get_by_role("button", name="trainer/loss").first.wait_for()


def test_a_line_over_another_metric_goes_on(going: tuple[RunningHub, Any], show: Opened) -> None:
    """What is logged while one looks comes into it within seconds."""
    hub, run = going
    page = show(hub, "run/going?x=trainer/tokens&q=loss")
    drawn = "Number(document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn)"
    until(page, f"{drawn} === {BEFORE}")
    until(page, "document.querySelector('.live-sign.open')")
    _log(run, BEFORE, 2 * BEFORE)
    run.flush()
    until(page, f"{drawn} === {2 * BEFORE}", 30)


ATTEMPT = """async () => {
  const { Feed } = await import("/web/charts/feed.js");
  const how = { x: "step", xKey: null, ranks: "all", from: null, to: null, points: 500, ghosts: true };
  const feed = new Feed("going", how), entry = feed.entry("trainer/loss"), want = feed.want.bind(feed);
  const read = async () => { while (entry.loading || entry.stale) await new Promise((done) => setTimeout(done, 20)); };
  let asked = 0;
  feed.want = (key) => { asked++; want(key); };
  feed.watch("trainer/loss", [1], () => {});
  await read();
  for (let turn = 0; turn < 3; turn++) {
    feed.take({ rank: 0, attempt: 2, points: { "trainer/loss": { step: [5], time: [1], value: [7] } } });
    await read();
  }
  feed.close();
  return [asked, entry.attempts];
}"""


def test_an_attempt_that_begins_is_read_once(going: tuple[RunningHub, Any], show: Opened) -> None:
    """Its first points have the line read again, for what it supersedes; the ones after it are appended."""
    hub, _ = going
    page = show(hub, "run/going")
    page.locator(".chart").first.wait_for()
    assert page.evaluate(ATTEMPT) == [2, [1, 2]]
