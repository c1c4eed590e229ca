"""A real browser before a real hub: Debian's Chromium driven by Playwright, and runs that the SDK wrote."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("chdb", reason="the hub's store needs chDB")
playwright = pytest.importorskip("playwright.sync_api", reason="the page is driven by playwright")

from tests.hub.conftest import PACKAGE, RunningHub  # noqa: E402

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Commands that start a browser, the lightest first."""
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--force-device-scale-factor=1",
    "--enable-precise-memory-info",
    "--js-flags=--expose-gc",
]
SECONDS = 180_000
"""Milliseconds that anything on the page may take before a test fails; enough for a machine ten times overloaded."""


TEST_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of the page more time than others: each waits for events, not for time, so most need little of it."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


class Browser:
    """Chromium with contexts that are used again: in a context of the same hub the page's files are cached."""

    def __init__(self, driven: Any) -> None:
        self._driven = driven
        self._idle: dict[Path, list[Any]] = {}

    def lend(self, hub: RunningHub) -> Any:
        """A context that nobody uses now; pages that are open at once have one each, so none waits for another's."""
        idle = self._idle.setdefault(hub.home, [])
        return idle.pop() if idle else self._driven.new_context()

    def take_back(self, hub: RunningHub, context: Any) -> None:
        """Forget what a test left in the browser, and keep the context for the next."""
        for page in context.pages:
            page.evaluate("localStorage.clear()")
            page.close()
        context.clear_cookies()
        self._idle[hub.home].append(context)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser; its driver has an event loop running in this thread, so it does not outlive the tests of a file."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium-headless-shell)")
    with playwright.sync_playwright() as driver:
        driven = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Browser(driven)
        driven.close()


@dataclass
class Opened:
    """Pages of a test and what they complained of."""

    browser: Browser
    lent: list[tuple[RunningHub, Any]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __call__(
        self, hub: RunningHub, address: str = "", *, width: int = 1280, height: int = 800, theme: str = "light"
    ) -> Any:
        """Open a view; errors on the page and requests that leave the machine are remembered."""
        context = self.browser.lend(hub)
        self.lent.append((hub, context))
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=theme)
        page.set_default_timeout(SECONDS)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("request", lambda request: self._foreign(hub, request.url))
        page.goto(f"{hub.url}/#/{address}")
        return page

    def close(self) -> None:
        """Close all pages."""
        while self.lent:
            self.browser.take_back(*self.lent.pop())

    def forgive(self, word: str) -> None:
        """Close all pages and forget complaints with a word: browsers log what our page explains."""
        self.close()
        self.complaints[:] = [each for each in self.complaints if word not in each]

    def _foreign(self, hub: RunningHub, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.port != hub.port:
            self.complaints.append(f"asked {url}")


@pytest.fixture
def show(browser: Browser) -> Iterator[Opened]:
    """Open views of a hub; the test fails when one of them complains."""
    opened = Opened(browser)
    yield opened
    opened.close()
    assert opened.complaints == []


def train(home: Path, first: int, last: int, *, ago: float, ranks: int = 4, run: str = "four-ranks") -> None:
    """Run `training.py` on some ranks at once, to its end; by its own clock it began some seconds ago."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPSCOPE_", "OTEL_"))}
    here = {"PYTHONPATH": str(PACKAGE), "STEPSCOPE_HOME": str(home), "STEPSCOPE_RUN_ID": run, "STEPSCOPE_PROBES": "0"}
    here["TRAINING_BEGAN"] = str(time.time_ns() - int(ago * 1e9))
    line = [sys.executable, str(Path(__file__).with_name("training.py")), str(first), str(last), "0.004"]
    started = [
        subprocess.Popen(line, env={**kept, **here, "RANK": str(rank), "WORLD_SIZE": str(ranks)})
        for rank in range(ranks)
    ]
    for process in started:
        process.wait(600)


def wait_for(is_true: Callable[[], object], seconds: float = 180) -> None:
    """Ask until something is true."""
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        time.sleep(0.05)


def until(page: Any, script: str, seconds: float = 180) -> Any:
    """Ask a page until a script's value is true, and return it; our policy forbids Playwright's own way, an eval."""
    deadline = time.monotonic() + seconds
    while not (found := page.evaluate(script)):
        assert time.monotonic() < deadline, f"not true within {seconds} s: {script}"
        page.wait_for_timeout(30)
    return found


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with a run of four ranks in which things went wrong, crashed and resumed; see training.py.

    Its store is in its home, or the empty one at the address that STEPSCOPE_TEST_STORE names.
    """
    home = tmp_path_factory.mktemp("web") / "home"
    named = os.environ.get("STEPSCOPE_TEST_STORE")
    train(home, 0, 250, ago=60)
    train(home, 230, 300, ago=30)
    hub = RunningHub(home, env={"STEPSCOPE_STORE": named} if named else {}).start()
    wait_for(lambda: hub.request("GET", "/api/runs/four-ranks").json().get("counts", {}).get("spans", 0) >= 8960)
    yield hub
    hub.kill()
