"""Charts as they are read: one x under the crosshair, waiting that looks like waiting, no questions nobody looks at."""

import threading
from typing import Any

from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, turn_to, until
from tests.web.training import SPIKE

READOUTS = """[...document.querySelectorAll('.chart.attended')].map((card) =>
    [card.dataset.key, card.querySelector('.chart-readout').innerText])"""


def _read(page: Any) -> dict[str, str]:
    return dict(page.evaluate(READOUTS))


def test_all_charts_are_read_at_the_same_x(trained: RunningHub, show: Opened) -> None:
    """Pointing near a spike of one chart reads every chart at its step; one without a value there says where its is."""
    page = show(trained, "run/four-ranks?tab=charts", height=1400)
    until(page, "document.querySelector('.chart[data-key=\"trainer/lr\"] .chart-plot')?.dataset.drawn > 0")
    until(page, "document.querySelector('.chart[data-key=\"evaluator/accuracy\"] .chart-plot')?.dataset.drawn > 0")
    over = page.locator('.chart[data-key="trainer/loss"] .u-over')
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] * (SPIKE + 0.6) / 299, box["y"] + box["height"] * 0.1)
    until(page, f"{READOUTS}.length >= 5")
    read = {key: text for key, text in _read(page).items() if not key.startswith("system/")}
    assert read["trainer/loss"].startswith(f"step {SPIKE} ")
    assert {text.split()[1] for text in read.values()} == {str(SPIKE)}
    page.mouse.move(box["x"] + box["width"] * 33.4 / 299, box["y"] + box["height"] * 0.5)
    until(page, f"{READOUTS}.every(([key, text]) => key.startsWith('system/') || text.startsWith('step 33'))")
    assert _read(page)["evaluator/accuracy"].endswith("(step 30)")
    page.mouse.move(2, 2)
    until(page, f"{READOUTS}.length === 0")


def test_a_chart_that_waits_is_no_empty_chart(trained: RunningHub, show: Opened) -> None:
    """Until the answer is there a placeholder stands where the plot will be, and no axis from 0 to 1."""
    page = show(trained, "health", fresh=True)
    held = threading.Event()
    waiting: list[Any] = []
    page.route("**/series?**", lambda route: waiting.append(route) if not held.is_set() else route.continue_())
    page.goto(f"{trained.url}/#/run/four-ranks?tab=charts")
    plot = page.locator('.chart[data-key="trainer/loss"] .chart-plot')
    page.locator('.chart[data-key="trainer/loss"] .chart-plot.waiting[aria-busy="true"]').wait_for()
    assert not plot.locator(".uplot").is_visible()
    held.set()
    for route in waiting:
        route.continue_()
    until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn > 0")
    assert plot.locator(".uplot").is_visible()
    assert plot.get_attribute("aria-busy") == "false"


def test_charts_that_nobody_looks_at_cost_nothing(trained: RunningHub, show: Opened) -> None:
    """Placeholders below the screen stand still: their shimmer took a sixth of a core for as long as a run was open."""
    page = show(trained, "health", height=500)
    page.emulate_media(reduced_motion="no-preference")
    turn_to(page, "run/four-ranks?tab=charts")
    until(
        page, "document.querySelector('.chart-plot')?.dataset.drawn > 0 && !document.querySelector('[aria-busy=true]')"
    )
    assert page.locator(".chart-plot.waiting").count() > 0
    assert page.evaluate("document.getAnimations().length") == 0


def test_charts_that_were_scrolled_past_take_their_questions_back(trained: RunningHub, show: Opened) -> None:
    """A question of charts that left the screen before it was answered is cancelled, and asked again on return."""
    page = show(trained, "health", height=420, fresh=True)
    held = threading.Event()
    page.route("**/series?**", lambda route: None if not held.is_set() else route.continue_())
    with page.expect_request("**/series?**") as asked:
        page.goto(f"{trained.url}/#/run/four-ranks?q=e&superseded=0")
    first = page.evaluate("document.querySelector('.chart').dataset.key")
    assert first.replace("/", "%2F") in asked.value.url
    with page.expect_event("requestfailed", lambda request: request.url == asked.value.url):
        page.evaluate("document.querySelector('main').scrollTo(0, 1e6)")
    held.set()
    page.evaluate("document.querySelector('main').scrollTo(0, 0)")
    until(page, f"document.querySelector('.chart[data-key=\"{first}\"] .chart-plot')?.dataset.drawn > 0")


def test_traces_and_logs_of_a_run_keep_its_head(trained: RunningHub, show: Opened) -> None:
    """The tabs lead to views that say whose they are, and back."""
    page = show(trained, "run/four-ranks?tab=charts")
    tabs = page.get_by_role("navigation", name="Parts of this run")
    for name in ("Traces", "Logs"):
        tabs.get_by_role("link", name=name).click()
        page.get_by_role("heading", level=1, name="four-ranks").wait_for()
        assert tabs.locator("[aria-current]").inner_text() == name
        assert page.locator(".facts").is_visible()
    tabs.get_by_role("button", name="Overview").click()
    page.get_by_role("region", name="Goodput").or_(page.locator("section.goodput")).first.wait_for()
    assert page.url.endswith("#/run/four-ranks?tab=overview")
