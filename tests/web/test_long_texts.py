"""Texts that are longer than there is room are folded, or moved under a finger; an unknown tab is the first."""

from collections.abc import Iterator

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, turn_to, until

RUNS = [f"a run with a name that is long, number {at}" for at in range(4)]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with runs whose names are long, one of them with a long setting."""
    running = RunningHub(tmp_path_factory.mktemp("long") / "home").start()
    for at, name in enumerate(RUNS):
        config = {"prompt": "x" * 40_000, "lr": at} if not at else {"lr": at}
        with stepscope.init("p", name, config, home=running.home, run_id=f"r{at}", probes=False, otel=False) as run:
            for step in range(9):
                run.log({"loss": step / 10}, step=step)
    wait_until(lambda: running.request("GET", "/api/runs").json()["total"] == len(RUNS))
    yield running
    running.kill()


def test_a_long_setting_is_folded(hub: RunningHub, show: Opened) -> None:
    """Its beginning is shown, and all of it when that is asked for, of one run and of several."""
    page = show(hub, "run/r0?tab=overview")
    for address in ("run/r0?tab=overview", "compare?run=r0&run=r1&tab=config"):
        turn_to(page, address)
        unfold = page.get_by_role("button", name="Show all 40,000 characters")
        unfold.wait_for()
        assert "x" * 300 not in page.locator("main").inner_text()
        unfold.click()
        page.get_by_role("button", name="Show less").wait_for()
        assert "x" * 40_000 in page.locator("main").inner_text()


@pytest.mark.parametrize(
    ("address", "first"),
    [("run/r0", "Charts"), ("compare?run=r0&run=r1", "Charts"), ("project/p", "Charts"), ("compare?run=r0", "Charts")],
)
def test_an_unknown_tab_is_the_first(hub: RunningHub, show: Opened, address: str, first: str) -> None:
    """An address with a tab that there is not, or not here, shows the first tab, which is marked."""
    for tab in ("nonsense", "notes" if "compare" in address else "x"):
        page = show(hub, f"{address}{'&' if '?' in address else '?'}tab={tab}")
        page.locator(".chart[data-key='loss']").wait_for()
        assert page.locator(".tabs [aria-current=page]").inner_text() == first


def test_an_unknown_tab_of_alerts_is_the_first(hub: RunningHub, show: Opened) -> None:
    """Firing alerts are shown, and their choice is marked."""
    show(hub, "alerts?tab=nonsense").locator(".choice label.on").get_by_text("Firing").wait_for()


def test_no_name_in_a_legend_is_cut_on_a_phone(hub: RunningHub, show: Opened) -> None:
    """The line under a chart has all names in full, and moves sideways instead of the page."""
    page = show(hub, "compare?" + "&".join(f"run=r{at}" for at in range(len(RUNS))), width=390, height=844)
    until(page, "document.querySelector('.chart[data-key=loss] .chart-legend')?.children.length === 4")
    cut = """(each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== 'visible'"""
    parts = "[...document.querySelectorAll('.chart[data-key=loss] :is(.chart-legend, .chart-legend *)')]"
    assert page.evaluate(f"{parts}.filter({cut}).length") == 0
    foot = "document.querySelector('.chart[data-key=loss] .chart-foot')"
    assert page.evaluate(f"{foot}.scrollWidth > {foot}.clientWidth && getComputedStyle({foot}).overflowX === 'auto'")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
