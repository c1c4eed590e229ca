"""The page in Chromium: what its first chart, 1,000 runs overlaid and a scroll over 2,000 charts ask for and cost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.hub_process import HubError, HubProcess
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, fresh, scratch

NAME = "page"
METHOD = (
    "The page in Chromium, 1,440 by 900 pixels, in a document that is open already: from the address to the first "
    "drawn chart, of a run with one metric (the reference) and of one with 12,000; all of 1,000 runs of a project "
    "laid over each other, until the charts in sight have every run; and scrolling the 12,000 charts, 2,000 by 1,200 "
    "pixels a frame and 200 by 120. Requests to the hub, kB of their answers, elements of the document at the end, the "
    "most canvases at once while it is scrolled, processor time "
    "of the page's main thread (not time on the clock, so that a busy machine does not count), and that time as a "
    "multiple of the reference's. A frame is late when the main thread worked on it for more than 50 ms."
)
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--in-process-gpu", "--force-device-scale-factor=1"]
WAIT_MS = 300_000
STORED_S = 300
LATE_S = 0.05
CHARTS, PIXELS = 2000, 1200
FEW_PIXELS = 120
IN_SECTION = 6
"""Charts of a section, as `page_world` writes them."""
FIRST, KEYS, RUNS = "one metric", "12,000 metrics", "1,000 runs overlaid"
SCROLL, READ = "2,000 charts scrolled", "200 charts read"
DRAWN = "document.querySelector('.chart-plot[data-drawn]:not([data-drawn=\"0\"])') !== null"
EVERY_RUN = """(wanted) => { const seen = [...document.querySelectorAll('.chart-plot[data-drawn]')].filter((each) => {
    const { top, bottom } = each.getBoundingClientRect(); return bottom > 0 && top < innerHeight; });
  return seen.length > 1 && seen.every((each) => Number(each.dataset.drawn) >= wanted); }"""


def measure(options: Options, progress: Progress) -> list[Result]:
    """Open the page of a hub that has many runs, and one run of many keys."""
    if OURS not in options.subjects:
        return []
    try:
        with scratch() as folder:
            return _measured(folder, options.quick, progress)
    except (HubError, ChildError, OSError, ImportError, LookupError) as error:
        progress(f"page: SKIPPED: {error}")
        return [Result(NAME, FIRST, OURS, skipped=str(error))]


def _measured(folder: Path, quick: bool, progress: Progress) -> list[Result]:
    from playwright.sync_api import sync_playwright

    command = next(filter(None, map(shutil.which, BROWSERS)), None)
    if command is None:
        raise LookupError("no Chromium is installed")
    runs, keys = (100, 2000) if quick else (1000, 12_000)
    hub = HubProcess(folder)
    try:
        progress("page: writing runs")
        fresh("benchmarks.page_world", {"home": str(hub.home), "project": "sweep", "runs": runs, "keys": keys})
        _await_stored(hub, runs, keys)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=command, args=FLAGS)
            tab = Tab(browser, f"http://127.0.0.1:{hub.port}")
            results = _visits(tab, runs, CHARTS if not quick else CHARTS // 10, progress)
            browser.close()
        hub.stop()
    finally:
        hub.close()
    return results


def _await_stored(hub: HubProcess, runs: int, keys: int) -> None:
    """Wait until the hub has every run, and every metric of the one with many."""
    until = time.monotonic() + STORED_S
    while time.monotonic() < until:
        if hub.get("/api/runs?limit=1")["total"] >= runs + 2 and len(hub.get("/api/runs/keys/keys")["keys"]) >= keys:
            return hub.wait_until_idle(60)
        time.sleep(0.5)
    raise HubError(f"the hub has not stored {runs} runs within {STORED_S} s")


def _visits(tab: Tab, runs: int, charts: int, progress: Progress) -> list[Result]:
    progress("page: first charts")
    tab.warm("run/single?tab=charts")
    one = tab.spent("run/single?tab=charts", lambda page: page.wait_for_function(DRAWN, timeout=WAIT_MS))
    many = tab.spent("run/keys?tab=charts", lambda page: page.wait_for_function(DRAWN, timeout=WAIT_MS))
    progress("page: scrolling")
    scrolled = tab.scrolled(charts, PIXELS)
    read = tab.scrolled(charts // 10, FEW_PIXELS)
    progress("page: runs over each other")
    overlaid = tab.spent("project/sweep", lambda page: _show_all(page, runs))
    rows = {FIRST: one, KEYS: many, SCROLL: scrolled, READ: read, RUNS: overlaid}
    return [Result(NAME, case, OURS, {**row, "times": row["cpu_ms"] / one["cpu_ms"]}) for case, row in rows.items()]


def _show_all(page: Any, runs: int) -> None:
    page.get_by_role("button", name="Which runs are visible").click(timeout=WAIT_MS)
    page.locator(".menu-list button, .menu button, [role=menu] button").get_by_text("All").first.click(timeout=WAIT_MS)
    page.wait_for_function(EVERY_RUN, arg=runs, timeout=WAIT_MS)


class Tab:
    """A page whose requests are counted, with the processor time of its main thread."""

    def __init__(self, browser: Any, url: str) -> None:
        self._url = url
        self._page = browser.new_context(viewport={"width": 1440, "height": 900}, bypass_csp=True).new_page()
        self._page.set_default_timeout(WAIT_MS)
        self._requests: list[Any] = []
        self._page.on("requestfinished", lambda request: self._requests.append(request))
        self._session = self._page.context.new_cdp_session(self._page)
        self._session.send("Performance.enable")

    def warm(self, view: str) -> None:
        """Show a view once, so that scripts are loaded and compiled."""
        self._page.goto(f"{self._url}/#/{view}")
        self._page.wait_for_function(DRAWN, timeout=WAIT_MS)
        self.leave()

    def leave(self) -> None:
        """Show a page without anything."""
        self._page.evaluate("location.hash = '#/none'")
        self._page.wait_for_function("document.querySelector('main > .state > .state-title') !== null")

    def spent(self, view: str, until: Callable[[Any], Any]) -> dict[str, float]:
        """Show a view and return what it took until something is there."""
        self.leave()
        before = self._begin()
        self._page.evaluate("(view) => { location.hash = '#/' + view; }", view)
        until(self._page)
        return self._since(before)

    def scrolled(self, charts: int, pixels: int) -> dict[str, float]:
        """Scroll the view that is shown, and return what that took; frames whose work is long are counted."""
        end = self._page.evaluate(_PLACE, charts / IN_SECTION)
        before, late, frames, canvases, previous = self._begin(), 0, 0, 0, self._metric("ThreadTime")
        while frames * pixels < end:
            canvases = max(canvases, self._page.evaluate(_SCROLL, pixels))
            spent = self._metric("ThreadTime")
            late += spent - previous > LATE_S
            previous, frames = spent, frames + 1
        return {**self._since(before), "frames": frames, "late": late, "canvases": canvases}

    def _begin(self) -> float:
        self._requests.clear()
        return self._metric("ThreadTime")

    def _since(self, before: float) -> dict[str, float]:
        spent = (self._metric("ThreadTime") - before) * 1000
        asked = [each for each in self._requests if "/api/" in each.url and "/api/live" not in each.url]
        sizes = [each.sizes()["responseBodySize"] for each in asked]
        nodes = self._page.evaluate("document.querySelectorAll('*').length")
        return {"requests": float(len(asked)), "kB": sum(sizes) / 1000, "nodes": float(nodes), "cpu_ms": spent}

    def _metric(self, name: str) -> float:
        found = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == name))


_PLACE = """(sections) => { const [one, two] = document.querySelectorAll('.chart-group');
  return sections * (two.getBoundingClientRect().top - one.getBoundingClientRect().top); }"""
"""How many pixels some sections of the present height take."""
_SCROLL = """(pixels) => new Promise((done) => { document.querySelector('main').scrollTop += pixels;
  requestAnimationFrame(() => requestAnimationFrame(() => done(document.querySelectorAll('canvas').length))); })"""
