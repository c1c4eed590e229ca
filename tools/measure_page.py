"""Measure the page in Chromium: first paint of ten million points, frames and memory while a run streams, scrolling."""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

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


def measure(url: str, home: Path, browser: Any, points: int, seconds: float) -> dict[str, Any]:
    """Measure everything there is."""
    found: dict[str, Any] = {}
    while ask(url, "runs/long")["counts"]["points"] < points:
        threading.Event().wait(0.2)
    paints = []
    for _ in range(3):
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{url}/#/run/long")
        wait(page, DRAWN)
        paints.append(page.evaluate("performance.now()"))
        page.close()
    found["first_paint_ms"] = {"points": points, "best": round(min(paints)), "median": round(statistics.median(paints))}
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
            flags = ["--no-sandbox", "--enable-precise-memory-info"]
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
            sys.stdout.write(json.dumps(measure(url, home, browser, given.points, given.seconds), indent=2) + "\n")
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
