"""The page follows a run as it goes on: by the stream alone, in bounded memory, without anything jumping."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, until, wait_for

HEAP = "(gc(), performance.memory.usedJSHeapSize)"
BEFORE = 20
AFTER = 300


class Trainer:
    """A run of this process that logs some metrics at every step, at the rate the test sets."""

    def __init__(self, home: Path) -> None:
        self.run = stepscope.init(project="web", name="going", run_id="going", home=home, probes=False)
        self.step = 0

    def go(self, steps: int, pause: float, stop: threading.Event) -> None:
        """Log so many steps."""
        for _ in range(steps):
            self.run.log(
                {"loss": 1 / (1 + self.step), "reward": self.step / 10, "lr": 3e-4}, step=self.step, category="trainer"
            )
            self.step += 1
            if stop.wait(pause):
                return


@pytest.fixture
def going(tmp_path: Path) -> Iterator[tuple[RunningHub, Trainer]]:
    """A hub and a run that has begun."""
    trainer = Trainer(tmp_path / "home")
    trainer.go(BEFORE, 0, threading.Event())
    trainer.run.flush()
    hub = RunningHub(tmp_path / "home").start()
    wait_for(lambda: hub.request("GET", "/api/runs/going").status == 200)
    yield hub, trainer
    trainer.run.finish()
    hub.kill()


DRAWN = "Number(document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn)"


def test_points_are_appended_without_asking_again(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """Three hundred steps arrive by the stream: the chart grows, no line is asked for again, nothing moves."""
    hub, trainer = going
    page = show(hub, "run/going")
    until(page, f"{DRAWN} === {BEFORE}")
    until(page, "document.querySelectorAll('.chart').length >= 3 && document.querySelector('.live-sign.open')")
    page.wait_for_timeout(500)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    before = _layout(page)
    trainer.go(AFTER, 0.005, threading.Event())
    until(page, f"{DRAWN} === {BEFORE + AFTER}")
    assert [url for url in asked if "/series" in url] == []
    assert _layout(page) == before
    assert page.locator('.chart[data-key="trainer/loss"] .chart-last').is_visible()
    until(page, f"document.querySelector('.facts dd').innerText === '{BEFORE + AFTER - 1}'")


def _layout(page: Any) -> Any:
    """Where the charts are."""
    return page.evaluate(
        "[...document.querySelectorAll('.chart')].slice(0, 3).map((c) => [c.dataset.key, c.offsetTop, c.offsetHeight])"
    )


def test_marks_stay_bounded_and_keep_extremes(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """However many points are appended, marks are few, and none of the extremes is lost."""
    hub, _ = going
    page = show(hub, "run/going")
    found = page.evaluate(
        """async () => { const { Marks } = await import("/web/charts/marks.js"), marks = new Marks(500);
        const odd = { 77777: 99, 123456: NaN };
        for (let step = 0; step < 200000; step++) marks.add(step, odd[step] ?? Math.sin(step), step % 4);
        const at = marks.high.indexOf(99), flagged = marks.flags.findIndex((flag) => flag === 1);
        return { length: marks.length, total: marks.total, from: marks.x[at], to: marks.last[at],
          rank: marks.highRank[at], nan: [marks.x[flagged], marks.last[flagged]],
          good: marks.good.reduce((a, b) => a + b) }; }"""
    )
    assert found["length"] <= 1000
    assert found["total"] == 200_000
    assert found["good"] == 199_999
    assert found["from"] <= 77_777 <= found["to"]
    assert found["rank"] == 1
    assert found["nan"][0] <= 123_456 <= found["nan"][1]


def test_late_points_find_their_place(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """Points may come in any order; marks are in the order of x."""
    hub, _ = going
    page = show(hub, "run/going")
    found = page.evaluate(
        """async () => { const { Marks } = await import("/web/charts/marks.js"), marks = new Marks(500);
        for (const step of [5, 1, 3, 2, 4, 3]) marks.add(step, step * 10 + (marks.total === 5 ? 5 : 0));
        return [marks.x, marks.mid]; }"""
    )
    assert found == [[1, 2, 3, 4, 5], [10, 20, 32.5, 40, 50]]


def test_new_runs_appear_and_move_in_the_table(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """The table follows the stream: the step of a run goes up, and a run that begins comes in."""
    hub, trainer = going
    page = show(hub, "runs")
    row = page.locator(".vt-row").filter(has_text="going")
    row.wait_for()
    trainer.go(AFTER, 0.002, threading.Event())
    until(
        page, f"[...document.querySelectorAll('.vt-row')].some((row) => row.innerText.includes('{BEFORE + AFTER - 1}'))"
    )
    other = stepscope.init(project="web", name="newcomer", run_id="newcomer", home=trainer.run.home, probes=False)
    other.log({"loss": 1.0}, step=0, category="trainer")
    other.flush()
    page.locator(".vt-row").filter(has_text="newcomer").wait_for()


def test_lost_stream_comes_back(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """When the hub is restarted the page says so, comes back by itself and shows what it missed."""
    hub, trainer = going
    page = show(hub, "run/going")
    until(page, f"{DRAWN} === {BEFORE}")
    hub.stop()
    page.locator(".live-sign").filter(has_text="reconnecting").wait_for()
    trainer.go(50, 0, threading.Event())
    trainer.run.flush()
    hub.start()
    until(page, f"{DRAWN} === {BEFORE + 50}")
    show.forgive("net::ERR")


def test_memory_stays_flat_while_a_run_streams(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """Two thousand steps of streaming do not grow the page's memory; `tools/measure_page.py` measures its frames."""
    hub, trainer = going
    page = show(hub, "run/going")
    until(page, f"{DRAWN} === {BEFORE}")
    until(page, "document.querySelector('.live-sign.open')")
    shown = "Number(document.querySelector('.facts dd').innerText.replace(/\\D/g, ''))"
    heaps = []
    for _ in range(2):
        trainer.go(1000, 0.005, threading.Event())
        until(page, f"{shown} === {trainer.step - 1}")
        heaps.append(page.evaluate(HEAP))
    assert heaps[1] - heaps[0] < 5_000_000
