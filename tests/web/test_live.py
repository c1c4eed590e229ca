"""The page follows a run as it goes on: by the stream alone, in bounded memory, without anything jumping."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, until

HEAP = "(gc(), performance.memory.usedJSHeapSize)"
BEFORE = 20
AFTER = 300


class Trainer:
    """A run of this process that logs some metrics at every step, at the rate the test sets."""

    def __init__(self, home: Path, name: str) -> None:
        self.run = stepscope.init(project="web", name=name, run_id=name, home=home, probes=False)
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


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """One hub for all tests of this file; each has a run of its own."""
    running = RunningHub(tmp_path_factory.mktemp("live") / "home").start()
    yield running
    running.kill()


@pytest.fixture
def going(hub: RunningHub, request: pytest.FixtureRequest) -> Iterator[tuple[RunningHub, Trainer]]:
    """A hub and a run that has begun."""
    if hub.process is None or hub.process.poll() is not None:
        hub.start()  # after a test that failed while it was away
    trainer = Trainer(hub.home, request.node.name.removeprefix("test_"))
    trainer.go(BEFORE, 0, threading.Event())
    trainer.run.flush()
    path = f"/api/runs/{trainer.run.id}"
    wait_until(lambda: hub.request("GET", path).json().get("counts", {}).get("points", 0) >= 3 * BEFORE)
    yield hub, trainer
    trainer.run.finish()


DRAWN = "Number(document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn)"


def test_points_are_appended_without_asking_again(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """Three hundred steps arrive by the stream: the chart grows, no line is asked for again, nothing moves."""
    hub, trainer = going
    page = show(hub, f"run/{trainer.run.id}")
    until(page, f"{DRAWN} === {BEFORE}")
    until(page, "document.querySelectorAll('.chart').length >= 3 && document.querySelector('.live-sign.open')")
    until(page, "!document.querySelector('[aria-busy=true]')")
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


def test_new_runs_appear_and_move_in_the_table(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """The table follows the stream: the step of a run goes up, and a run that begins comes in."""
    hub, trainer = going
    page = show(hub, "runs")
    page.locator(f".vt-row[data-id={trainer.run.id}]").wait_for()
    trainer.go(AFTER, 0.002, threading.Event())
    row = f"document.querySelector('.vt-row[data-id={trainer.run.id}]')"
    until(page, f"{row}?.innerText.includes('{BEFORE + AFTER - 1}')")
    other = stepscope.init(project="web", name="newcomer", run_id="newcomer", home=trainer.run.home, probes=False)
    other.log({"loss": 1.0}, step=0, category="trainer")
    other.flush()
    page.locator(".vt-row").filter(has_text="newcomer").wait_for()


def test_lost_stream_comes_back(going: tuple[RunningHub, Trainer], show: Opened) -> None:
    """When the hub is restarted the page says so, comes back by itself and shows what it missed."""
    hub, trainer = going
    page = show(hub, f"run/{trainer.run.id}")
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
    page = show(hub, f"run/{trainer.run.id}")
    until(page, f"{DRAWN} === {BEFORE}")
    until(page, "document.querySelector('.live-sign.open')")
    shown = "Number(document.querySelector('.facts dd').innerText.replace(/\\D/g, ''))"
    heaps = []
    for _ in range(2):
        trainer.go(1000, 0.005, threading.Event())
        until(page, f"{shown} === {trainer.step - 1}")
        heaps.append(page.evaluate(HEAP))
    assert heaps[1] - heaps[0] < 5_000_000
