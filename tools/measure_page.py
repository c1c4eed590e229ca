"""Measure the page in Chromium: first paint of ten million points, frames and memory while a run streams, scrolling."""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tools.screenshots import ask, served

WORK = """(() => { const ask = requestAnimationFrame.bind(window); window.work = []; let at = 0;
  window.requestAnimationFrame = (call) => ask((now) => { const began = performance.now(); call(now);
    const spent = performance.now() - began;
    if (at === now) work[work.length - 1] += spent; else { at = now; work.push(spent); } }); })()"""
"""Adds up what the callbacks of each frame take."""
FRAMES = """(ms) => new Promise((done) => { const gaps = []; let before = performance.now(), start = before;
  const frame = (now) => { gaps.push(now - before); before = now;
    if (now - start < ms) requestAnimationFrame(frame); else done(gaps.slice(1)); };
  requestAnimationFrame(frame); })"""
"""The times between frames, for so many milliseconds."""
LINE = "performance.getEntriesByName('stepscope:line').map((mark) => Math.round(mark.startTime))[0]"
"""When the first line was on the canvas, in milliseconds since the page was asked for."""
VISITS = 4
DRAWN = "Number(document.querySelector('.chart .chart-plot')?.dataset.drawn) > 0"


def fill(home: Path, points: int) -> None:
    """Write one long run."""
    import stepscope

    run = stepscope.init(project="measure", name="long", run_id="long", home=home, probes=False)
    for step in range(points):
        run.log({"loss": 1.0 + (step % 97) / 970}, step=step)
        if step % 20_000 == 0:
            run.flush()
    run.finish(timeout=120)


def stream(home: Path, seconds: float, stop: threading.Event) -> None:
    """Log fifty points a second, ten metrics each, as a run that goes on."""
    import stepscope

    run = stepscope.init(project="measure", name="going", run_id="going", home=home, probes=False)
    step = 0
    while not stop.wait(0.02):
        run.log({f"m{n}": n + step % 13 for n in range(10)}, step=step, category="trainer")
        step += 1
    run.finish()


def wait(page: Any, script: str, seconds: float = 120) -> None:
    """Ask the page until something is true."""
    for _ in range(int(seconds * 50)):
        if page.evaluate(script):
            return
        page.wait_for_timeout(20)
    raise TimeoutError(script)


def share(values: list[float], part: float) -> float:
    """A quantile, rounded."""
    return round(sorted(values)[min(len(values) - 1, int(part * len(values)))], 1)


@contextlib.contextmanager
def undisturbed() -> Iterator[str]:
    """A browser of its own that nobody watches while a page loads; gives the address to ask it afterwards."""
    with tempfile.TemporaryDirectory() as profile:
        flags = ("--headless=new", "--no-sandbox", "--remote-debugging-port=0", "--window-size=1280,800")
        line = [str(shutil.which("chromium")), *flags, f"--user-data-dir={profile}", "about:blank"]
        browser = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
        try:
            assert browser.stderr is not None
            said = (re.search(r"ws://\S+", line) for line in browser.stderr)
            yield next(match.group(0) for match in said if match)
        finally:
            browser.terminate()
            browser.wait()


def visits(url: str, driver: Any) -> list[int]:
    """Open the long run in a browser that was never here, then again; milliseconds until its line is drawn."""
    drawn = []
    with undisturbed() as browser:
        time.sleep(3)
        for _ in range(VISITS):
            wanted = f"http://127.0.0.1:{urlsplit(browser).port}/json/new?{quote(url + '/#/run/long', safe='')}"
            urllib.request.urlopen(urllib.request.Request(wanted, method="PUT")).close()
            time.sleep(5)
            watching = driver.chromium.connect_over_cdp(browser)
            page = next(page for page in watching.contexts[0].pages if "run/long" in page.url)
            drawn.append(page.evaluate(LINE))
            page.close()
            watching.close()
    return drawn


def measure(url: str, home: Path, browser: Any, seconds: float) -> dict[str, Any]:
    """Measure frames and memory while a run streams."""
    found: dict[str, Any] = {}
    stop = threading.Event()
    trainer = threading.Thread(target=stream, args=(home, seconds, stop))
    trainer.start()
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(WORK)
    page.goto(f"{url}/#/runs")
    wait(page, "document.querySelectorAll('.vt-row').length >= 2")
    page.goto(f"{url}/#/run/going")
    wait(page, DRAWN)
    idle = browser.new_page()
    quiet = idle.evaluate(FRAMES, 3000)
    idle.close()
    before = page.evaluate("performance.memory.usedJSHeapSize")
    page.evaluate("work.length = 0")
    gaps = page.evaluate(FRAMES, int(seconds * 1000))
    work = page.evaluate("work")
    after = page.evaluate("performance.memory.usedJSHeapSize")
    stop.set()
    trainer.join()
    shares = {f"p{round(part * 100)}_ms": share(gaps, part) for part in (0.5, 0.95, 0.99)}
    heap = [round(size / 1e6, 1) for size in (before, after)]
    found["streaming"] = {
        "seconds": seconds,
        "frames": len(gaps),
        **shares,
        "work_p95_ms": share(work, 0.95),
        "heap_mb": heap,
    }
    found["empty_page"] = {"p95_ms": share(quiet, 0.95)}
    return found


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000, help="of the long run")
    parser.add_argument("--seconds", type=float, default=60.0, help="of streaming")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        fill(home, given.points)
        with served(home) as url, sync_playwright() as driver:
            while ask(url, "runs")["runs"] == [] or ask(url, "runs/long")["counts"]["points"] < given.points:
                time.sleep(0.5)
            first, *again = visits(url, driver)
            found = {"line_drawn_ms": {"points": given.points, "first visit": first, "again": again}}
            flags = ["--no-sandbox", "--enable-precise-memory-info"]
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
            found |= measure(url, home, browser, given.seconds)
            sys.stdout.write(json.dumps(found, indent=2) + "\n")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
