"""A real browser before a real hub: Debian's Chromium driven by Playwright, and runs that the SDK wrote."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")
playwright = pytest.importorskip("playwright.sync_api", reason="the page is driven by playwright")

from tests.hub.conftest import PACKAGE, RunningHub  # noqa: E402
from tests.shared import shared  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Commands that start a browser, the lightest first."""
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",
    "--force-device-scale-factor=1",
    "--enable-precise-memory-info",
    "--js-flags=--expose-gc --no-opt",
]
"""Without a process that only draws, and without optimised machine code, which takes longer to make than tests last."""
SECONDS = 180_000
"""Milliseconds that anything on the page may take before a test fails; enough for a machine ten times overloaded."""
NO_VIEW = "none"
"""The address of a page between two tests: there is no such view."""
TEST_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of the page more time than others: each waits for events, not for time, so most need little of it."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@dataclass(eq=False)
class Tab:
    """A page in a context of its own."""

    hub: RunningHub
    context: Any
    page: Any
    fresh: bool
    """Whether a test may leave anything behind in it; such a page is closed after the test."""
    complaints: list[str] = field(default_factory=list)
    """Where errors on the page and requests that leave the machine go."""

    def listen(self) -> None:
        """Begin to note complaints."""
        self.page.set_default_timeout(SECONDS)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self._note_foreign(request.url))

    def _note_foreign(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.port != self.hub.port:
            self.complaints.append(f"asked {url}")


class Browser:
    """Chromium whose pages are used again: loading the scripts costs ten times what most views do."""

    def __init__(self, driven: Any) -> None:
        self._driven = driven
        self._idle: dict[Path, list[Tab]] = {}
        self._contexts: dict[Path, list[Any]] = {}

    def lend(self, hub: RunningHub, fresh: bool) -> Tab:
        """A tab that nobody uses now; pages that are open at once have a context each, so none waits for another's."""
        self._close_ended()
        idle = self._idle.setdefault(hub.home, [])
        if idle and not fresh:
            return idle.pop()
        contexts = self._contexts.setdefault(hub.home, [])  # in a context of the same hub the page's files are cached
        context = contexts.pop() if contexts else self._driven.new_context()
        tab = Tab(hub, context, context.new_page(), fresh)
        tab.listen()
        return tab

    def take_back(self, tab: Tab) -> None:
        """Forget what a test left in the browser, and keep what the next can use: the page, or its context."""
        tab.page.evaluate("localStorage.clear()")
        if tab.fresh or tab.complaints:
            tab.page.close()
            tab.context.clear_cookies()
            self._contexts[tab.hub.home].append(tab.context)
            return
        tab.complaints = []
        tab.page.mouse.move(0, 0)
        leave_view(tab.page)
        self._idle[tab.hub.home].append(tab)

    def _close_ended(self) -> None:
        """Close the pages of hubs that have ended."""
        for tabs in self._idle.values():
            for tab in [each for each in tabs if each.hub.process is None or each.hub.process.poll() is not None]:
                tabs.remove(tab)
                tab.context.close()


@pytest.fixture
def browser() -> Browser:
    """The browser of a world; its driver has an event loop running in this thread, so it ends with the world."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (apt-get install chromium-headless-shell)")
    return shared("browser", _browser)


@contextmanager
def _browser() -> Iterator[Browser]:
    with playwright.sync_playwright() as driver:
        driven = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Browser(driven)
        driven.close()


@dataclass
class Opened:
    """Pages of a test and what they complained of."""

    browser: Browser
    lent: list[Tab] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __call__(
        self,
        hub: RunningHub,
        address: str = "",
        *,
        width: int = 1280,
        height: int = 800,
        theme: str = "light",
        fresh: bool = False,
    ) -> Any:
        """Open a view, in a document that may have shown others before.

        A test about loading the document asks for a fresh page, and so does one that leaves routes, listeners for
        dialogs or a choice of the reader behind.
        """
        tab = self.browser.lend(hub, fresh)
        self.lent.append(tab)
        tab.complaints = self.complaints
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        tab.page.goto(f"{hub.url}/#/{address}")
        return tab.page

    def close(self) -> None:
        """Close all pages."""
        while self.lent:
            self.browser.take_back(self.lent.pop())

    def forgive(self, word: str) -> None:
        """Close all pages and forget complaints with a word: browsers log what our page explains."""
        self.close()
        self.complaints[:] = [each for each in self.complaints if word not in each]


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
    line = [sys.executable, str(Path(__file__).with_name("training.py")), *map(str, (ranks, first, last, 0.004))]
    subprocess.run(line, env={**kept, **here}, check=True, timeout=600)


def leave_view(page: Any) -> None:
    """Leave the view of a page, so that nothing of it is there any more."""
    page.evaluate(f"location.hash = '#/{NO_VIEW}'")
    until(page, "document.querySelector('main > .state > .state-title')?.innerText === 'Page not found'")


def turn_to(page: Any, address: str) -> None:
    """Show a view on a page instead of the present one; what is there then is of this view."""
    leave_view(page)
    page.evaluate("(hash) => { location.hash = hash; }", f"#/{address}")


_POLL = """async (seconds) => {
  const end = performance.now() + seconds * 1000;
  for (let pause = 20; ; pause = Math.min(pause * 1.2, 250)) {
    let found = null, problem = "";
    try { found = (SCRIPT); } catch (error) { problem = String(error); }
    if (found || performance.now() > end) return [found, problem];
    await new Promise((again) => setTimeout(again, pause));
  }
}"""


def until(page: Any, script: str, seconds: float = 180) -> Any:
    """Wait until a script's value is true on a page, and return it; what it asks may not be there yet.

    The page asks itself: our policy forbids Playwright's own way, an eval, and asking from here costs far more.
    """
    deadline = time.monotonic() + seconds
    problem = ""
    while (left := deadline - time.monotonic()) > 0:
        try:
            found, problem = page.evaluate(_POLL.replace("SCRIPT", script), left)
        except playwright.Error as error:  # the document was left meanwhile
            problem = str(error)
            page.wait_for_timeout(100)
            continue
        if found:
            return found
    raise AssertionError(f"not true within {seconds} s: {script} {problem}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunningHub:
    """A hub with a run of four ranks in which things went wrong, crashed and resumed; see training.py.

    Its store is in its home, or the empty one at the address that STEPSCOPE_TEST_STORE names.
    """
    return shared("trained", lambda: _trained(tmp_path_factory.mktemp("web") / "home"))


@contextmanager
def _trained(home: Path) -> Iterator[RunningHub]:
    named = os.environ.get("STEPSCOPE_TEST_STORE")
    train(home, 0, 250, ago=60)
    train(home, 230, 300, ago=30)
    hub = RunningHub(home, env={"STEPSCOPE_STORE": named} if named else {}).start()
    wait_until(lambda: hub.request("GET", "/api/runs/four-ranks").json().get("counts", {}).get("spans", 0) >= 8960)
    wait_until(lambda: hub.request("GET", "/api/runs/four-ranks/findings").json()["complete"])
    yield hub
    hub.kill()
