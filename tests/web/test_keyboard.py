"""Everything can be reached without a mouse and read without eyes."""

from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, until
from tests.web.looks import SIZES, look_over
from tests.web.test_every_view import VIEWS as IN_BOTH_THEMES
from tests.web.training import NAN, SPIKE

VIEWS = (
    "runs",
    "run/four-ranks?tab=charts",
    "run/four-ranks?tab=overview",
    "run/four-ranks?tab=diagnosis",
    "run/four-ranks?step=120&at=2",
    "compare?run=four-ranks",
    "projects",
    "project/web",
    "project/web?tab=config&group=config.lr",
)
"""On a phone all of them are looked over; in a wide window `test_menus` looks over those of the shared list."""


def test_from_the_runs_to_the_cause_by_keyboard(trained: RunningHub, show: Opened) -> None:
    """Enter opens the run, Tab reaches its loss, up goes to the highest point, Enter names the cause; Escape leaves."""
    page = show(trained, "runs")
    page.get_by_text("four-ranks").wait_for()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('vt-row')"):
            break
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn > 0")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.chart[data-key=\"trainer/loss\"] .chart-plot')"):
            break
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=f"Step {SPIKE}")
    dialog.get_by_text("trainer/loss spiked to 41.5").wait_for()
    step = SPIKE
    while step < NAN:  # a busy machine may have made other steps slow
        page.locator('.step[aria-busy="false"]').wait_for()
        page.get_by_role("button", name="Next anomaly: step").wait_for()
        page.keyboard.press("n")
        label = "document.querySelector('.drawer').ariaLabel"
        step = int(until(page, f"{label} !== 'Step {step}' && {label}").removeprefix("Step "))
    page.get_by_role("dialog", name=f"Step {NAN}").get_by_text("trainer/margin became NaN").wait_for()
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('.drawer')")
    until(page, "document.activeElement.classList.contains('chart-plot')")


@SIZES
def test_views_are_readable_and_fit(trained: RunningHub, show: Opened, width: int, theme: str) -> None:
    """Names, roles, contrast and focus are as the rules of WCAG want them, and nothing is wider than the window."""
    views = [each for each in VIEWS if width < 1280 or each not in IN_BOTH_THEMES]
    look_over(show(trained, width=width, theme=theme), trained, views)
