"""Take the pictures of docs/images: train the demo, serve its home, and photograph each view with Chromium."""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
_LINE = re.compile(r"stepscope hub: (https?://[^ ]+)")
SETTLED = """!document.querySelector('.state .pulse') && document.querySelector('main').innerText.length > 40
  && !document.querySelector('main').innerText.includes('Looking for problems')"""


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture: the view's address, with RUN, OTHER and STEP filled in, and its window."""

    name: str
    address: str
    width: int = 1280
    height: int = 860
    theme: str = "light"

    @property
    def file(self) -> str:
        """What the picture is called."""
        return f"{self.name}-{self.theme}-{self.width}.png"


SHOTS = (
    Shot("run", "run/RUN?smooth=0.6"),
    Shot("step", "run/RUN?step=STEP", theme="dark"),
    Shot("overview", "run/RUN?tab=overview", height=592),
    Shot("dashboards", "dashboards?run=OTHER"),
)
"""Those that a page of the documents shows."""


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Serve a home folder and tell where."""
    line = [sys.executable, "-m", "stepscope", "hub", "--home", str(home), "--port", "0", "--grpc-port", "0"]
    hub = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        assert hub.stdout is not None
        found = _LINE.match(hub.stdout.readline())
        assert found is not None, "the hub did not start"
        yield found[1]
    finally:
        hub.terminate()
        hub.wait(30)


def demo(home: Path) -> None:
    """Train what there is to see."""
    subprocess.run([sys.executable, "-m", "stepscope", "demo", "--exit", "--home", str(home)], check=True)


def ask(url: str, path: str) -> Any:
    """Ask the JSON API."""
    with urllib.request.urlopen(f"{url}/api/{path}", timeout=60) as answer:
        return json.load(answer)


def stored(url: str) -> list[Any]:
    """The runs, once the hub has read all that their journals hold."""
    before: Any = None
    for _ in range(120):
        runs = ask(url, "runs")["runs"]
        now = [run["counts"] for run in runs]
        if runs and now == before:
            return list(runs)
        before = now
        time.sleep(1.0)
    raise TimeoutError("the hub has no runs")


def places(url: str) -> dict[str, str]:
    """The runs and the step that the addresses mean: the run with most ranks, and where its worst finding is."""
    runs = stored(url)
    runs.sort(key=lambda run: (-run["ranks"], run["id"]))
    first, other = runs[0]["id"], runs[-1]["id"]
    findings = ask(url, f"runs/{first}/findings")["findings"]
    steps = [each["step"] for each in findings if each["kind"] == "spike"] or [each["step"] for each in findings]
    return {"RUN": first, "OTHER": other, "STEP": str(next((step for step in steps if step is not None), 0))}


def take(url: str, folder: Path, names: list[str]) -> None:
    """Photograph the views."""
    from playwright.sync_api import sync_playwright

    filled = places(url)
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-headless-shell"), args=["--no-sandbox"]
        )
        for shot in SHOTS:
            if names and shot.name not in names:
                continue
            address = re.sub("RUN|OTHER|STEP", lambda word: filled[word[0]], shot.address)
            size: Any = {"width": shot.width, "height": shot.height}
            theme: Any = shot.theme
            page = browser.new_page(viewport=size, color_scheme=theme)
            page.goto(f"{url}/#/{address}")
            for _ in range(200):
                page.wait_for_timeout(100)
                if page.evaluate(SETTLED):
                    break
            page.wait_for_timeout(2500)
            page.screenshot(path=folder / shot.file)
            page.close()
        browser.close()


def main() -> int:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--home", type=Path, help="a home with runs, instead of the demo's")
    parser.add_argument("--into", type=Path, default=IMAGES, help="the folder for the pictures (docs/images)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        home = given.home or Path(place)
        if given.home is None:
            demo(home)
        with served(home) as url:
            take(url, given.into, given.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
