"""The page of a running run stays up to date: findings, and lines over another metric."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, until

BEFORE = 120


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """One hub for all tests of this file; each has a run of its own."""
    running = RunningHub(tmp_path_factory.mktemp("follows") / "home").start()
    yield running
    running.kill()


@pytest.fixture
def going(hub: RunningHub, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A run that has begun and has no findings."""
    run = stepscope.init(project="web", run_id=request.node.name, home=hub.home, probes=False)
    _log(run, 0, BEFORE)
    run.flush()
    path = f"/api/runs/{run.id}"
    wait_until(lambda: hub.request("GET", path).json().get("counts", {}).get("points", 0) >= 2 * BEFORE)
    yield run
    run.finish()


def _log(run: Any, first: int, last: int) -> None:
    for step in range(first, last):
        run.log({"loss": 1 + (step % 7) / 100, "tokens": step * 10.0}, step=step, category="trainer")


def test_findings_of_a_running_run_appear_without_an_alert(hub: RunningHub, going: Any, show: Opened) -> None:
    """A spike and a NaN are found while the run goes on, though no alert was raised, and can be marked as expected."""
    page = show(hub, f"run/{going.id}")
    page.get_by_text("No problems found").wait_for()
    going.log({"loss": 900.0}, step=BEFORE, category="trainer")
    going.log({"margin": math.nan}, step=BEFORE, category="trainer")
    _log(going, BEFORE + 1, 2 * BEFORE)
    going.flush()
    page.get_by_role("button", name="trainer/margin").first.wait_for()
    until(page, "Number(document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot').dataset.findings) > 0")
    told = hub.request("GET", f"/api/runs/{going.id}/findings").json()["findings"]
    page.get_by_role("button", name="Show more").click()
    page.get_by_text(told[0]["advice"]).first.wait_for()
    page.get_by_text("trainer/loss spiked to 900").first.wait_for()
    page.locator(".run-findings").get_by_role("button", name="Expected", exact=True).first.click()
    page.get_by_role("button", name="in this run").click()
    page.get_by_text("expected, marked by local").wait_for()


def test_a_line_over_another_metric_goes_on(hub: RunningHub, going: Any, show: Opened) -> None:
    """Points that are logged while the page is open are added to the line."""
    page = show(hub, f"run/{going.id}?x=trainer/tokens&q=loss")
    drawn = "Number(document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn)"
    until(page, f"{drawn} === {BEFORE}")
    until(page, "document.querySelector('.live-sign.open')")
    _log(going, BEFORE, 2 * BEFORE)
    going.flush()
    until(page, f"{drawn} === {2 * BEFORE}")


ATTEMPT = """async (run) => {
  const { Feed } = await import("/web/charts/feed.js");
  const how = { x: "step", xKey: null, ranks: "all", from: null, to: null, points: 500, ghosts: true };
  const feed = new Feed(run, how), entry = feed.entry("trainer/loss"), want = feed.want.bind(feed);
  const read = async () => { while (entry.loading || entry.stale) await new Promise((done) => setTimeout(done, 20)); };
  let asked = 0;
  feed.want = (key) => { asked++; want(key); };
  feed.watch({ key: "trainer/loss", attempts: [1], ranks: [0] }, () => {});
  await read();
  for (let turn = 0; turn < 3; turn++) {
    feed.take({ rank: 0, attempt: 2, points: { "trainer/loss": { step: [5], time: [1], value: [7] } } });
    await read();
  }
  feed.close();
  return [asked, entry.attempts];
}"""


def test_an_attempt_that_begins_is_read_once(hub: RunningHub, going: Any, show: Opened) -> None:
    """The first points of an attempt have the line read again, for what it supersedes; later ones are appended."""
    page = show(hub, f"run/{going.id}")
    page.locator(".chart").first.wait_for()
    assert page.evaluate(ATTEMPT, going.id) == [2, [1, 2]]
