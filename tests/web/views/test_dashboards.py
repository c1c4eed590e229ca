"""Dashboards in the browser: the built-in ones show the right run, one's own is written, kept, mended and deleted."""

from typing import Any

import pytest

from tests.web.conftest import until
from tests.web.views.conftest import World
from tests.web.views.recorded import RUN, SERVICE

OWN = """title: Mine
charts:
  - title: Rewards
    keys: ["*reward_mean"]
"""


def test_rl_layout(world: World, show: Any) -> None:
    """The charts of the layout are there in order, drawn from the RL run, with the bands of KL."""
    page = show(world.hub, "dashboards/rl")
    until(page, "document.querySelectorAll('.chart-plot[data-drawn]').length >= 6")
    titles = page.locator(".dash-grid h3").evaluate_all("(all) => all.map((each) => each.firstChild.textContent)")
    wanted = ["Training loss", "Learning rate", "KL divergence", "Clip fraction", "GPU utilisation", "Queue depth"]
    assert titles[:6] == wanted
    assert page.get_by_placeholder(RUN).count() == 1
    until(page, "document.querySelector('.chart[aria-label=\"GPU utilisation\"] [data-drawn]')?.dataset.drawn > 0")
    page.locator(".chart[aria-label^='Forward-backward']").scroll_into_view_if_needed()
    legend = "document.querySelector('.chart[aria-label^=\"Forward-backward\"] .chart-legend')"
    until(page, f"{legend}?.innerText.includes('p99')")
    until(page, "document.querySelector('.chart[aria-label^=\"Forward-backward\"] .chart-plot')?.dataset.drawn > 0")


def test_bands_are_drawn(world: World, show: Any) -> None:
    """KL's critical band colours the chart behind the line where the values reach it."""
    page = show(world.hub, f"dashboards/rl?run={RUN}")
    until(page, "document.querySelector('.chart[aria-label=\"KL divergence\"] .chart-plot')?.dataset.drawn > 0")
    shades = page.evaluate(
        """() => { const canvas = document.querySelector('.chart[aria-label="KL divergence"] canvas');
        const pen = canvas.getContext('2d'), seen = new Set();
        const shade = (y) => pen.getImageData(canvas.width - 130, y, 1, 1).data.join();
        for (let y = 12; y < canvas.height - 30; y += 3) seen.add(shade(y));
        return seen.size; }"""
    )
    assert shades >= 3


def test_service_shows_histograms(world: World, show: Any) -> None:
    """Recorded histograms are drawn as quantiles, for the run that has them, which is found by itself."""
    page = show(world.hub, "dashboards/service")
    chart = page.locator(".chart[aria-label^='Sampling duration']")
    chart.wait_for()
    until(page, "document.querySelector('.chart[aria-label^=\"Sampling duration\"] .chart-plot')?.dataset.drawn > 0")
    assert page.get_by_placeholder(SERVICE).count() == 1
    assert "duration p50" in chart.inner_text()
    assert "Not in this run" in page.locator(".dash-left").inner_text()


def test_ones_own_is_written_and_kept(world: World, show: Any) -> None:
    """YAML becomes charts while one writes, is kept in the home folder, opens again, and can be deleted."""
    page = show(world.hub, f"dashboards?new=1&edit=1&run={RUN}")
    area = page.get_by_label("The dashboard as YAML")
    area.fill(OWN)
    page.locator(".chart[aria-label='Rewards']").wait_for()
    page.get_by_label("Name", exact=True).fill("mine")
    page.get_by_role("button", name="Keep").click()
    page.get_by_role("link", name="Mine").wait_for()
    assert (world.hub.home / "dashboards" / "mine.yaml").read_text() == OWN
    page.goto(f"{world.hub.url}/#/dashboards/mine?run={RUN}&edit=1")
    again = page.get_by_label("The dashboard as YAML")
    again.wait_for()
    assert again.input_value() == OWN
    again.fill(OWN + "  - title: Entropy\n    keys: ['*entropy']\n")
    page.locator(".chart[aria-label='Entropy']").wait_for()
    page.keyboard.press("Control+s")
    until(page, "!location.hash.includes('edit=1')")
    assert "Entropy" in (world.hub.home / "dashboards" / "mine.yaml").read_text()
    page.get_by_role("button", name="Edit").click()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    until(page, "!location.hash.includes('mine')")
    assert not (world.hub.home / "dashboards" / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("title: A\ncharts:\n  - title: [\n", 4, "expected"),
        ("title: A\ncharts:\n  - title: B\n    keyz: [a]\n", 4, "keyz"),
        ("title: A\ncharts:\n  - keys: [a]\n    scale: logg\n", 4, "logg"),
    ],
)
def test_mistakes_are_shown_in_place(world: World, show: Any, text: str, line: int, word: str) -> None:
    """A mistake is said with its line, the line is marked, and it cannot be kept."""
    page = show(world.hub, f"dashboards?new=1&edit=1&run={RUN}")
    page.get_by_label("Name", exact=True).fill("wrong")
    page.get_by_label("The dashboard as YAML").fill(text)
    page.locator("#dash-mistake.bad-text").wait_for()
    said = page.locator("#dash-mistake").inner_text()
    assert said.startswith(f"Line {line}:")
    assert word in said
    assert page.locator(".dash-gutter .wrong").inner_text() == str(line)
    assert page.get_by_role("button", name="Keep").is_disabled()


def test_a_broken_file_is_told(world: World, show: Any) -> None:
    """A file that someone broke by hand is listed as wrong and can be mended."""
    folder = world.hub.home / "dashboards"
    folder.mkdir(exist_ok=True)
    (folder / "broken.yaml").write_text("title: [")
    try:
        page = show(world.hub, "dashboards/broken")
        page.get_by_text("This dashboard cannot be read").wait_for()
        page.get_by_role("button", name="Mend it").click()
        page.get_by_label("The dashboard as YAML").wait_for()
    finally:
        (folder / "broken.yaml").unlink()
