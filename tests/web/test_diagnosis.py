"""The diagnosis of a run is a place: the verdict, findings along the steps, and the evidence of each."""

from typing import Any

from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, turn_to, until
from tests.web.training import SPIKE


def test_a_finding_is_shown_with_its_evidence(trained: RunningHub, show: Opened) -> None:
    """The verdict is the hub's; a flag on the steps leads to the finding, its values are drawn, and its step opens."""
    findings: list[dict[str, Any]] = trained.request("GET", "/api/runs/four-ranks/findings").json()["findings"]
    page = show(trained, "run/four-ranks?tab=charts", fresh=True)
    page.get_by_role("navigation", name="Parts of this run").get_by_role("button").first.click()
    until(page, "document.querySelectorAll('.diagnosed').length > 0")
    assert page.url.endswith("tab=diagnosis")
    assert findings[0]["text"].removesuffix(".") in page.locator(".verdict").inner_text()
    assert page.locator(".diagnosed").count() == len(findings)
    at = next(n for n, each in enumerate(findings) if each["step"] == SPIKE and each["key"] == "trainer/loss")
    page.locator(f'.time-line-mark[aria-label^="Step {SPIKE}: "]').first.click()
    until(page, "document.querySelectorAll('.diagnosed.on').length === 1")
    card = page.locator(f'[data-finding="{at}"]')
    card.scroll_into_view_if_needed()
    until(page, f"document.querySelector('[data-finding=\"{at}\"] .chart-plot')?.dataset.drawn > 0")
    assert card.locator('.chart-plot[data-findings="1"]').count() == 1
    for words in (
        findings[at]["band"].removeprefix("Expected "),
        findings[at]["advice"],
        f"stepscope step four-ranks {SPIKE}",
    ):
        assert words in card.inner_text()
    card.get_by_role("button", name=f"Open step {SPIKE}").click()
    page.get_by_role("dialog", name=f"Step {SPIKE}").wait_for()


def test_a_run_with_findings_opens_with_its_diagnosis(trained: RunningHub, show: Opened) -> None:
    """A bare address opens the diagnosis, and says so; one with a step or a tab opens what it says."""
    page = show(trained, "run/four-ranks")
    until(page, "document.querySelectorAll('.diagnosed').length > 0")
    assert page.url.endswith("#/run/four-ranks?tab=diagnosis")
    tabs = page.get_by_role("navigation", name="Parts of this run")
    tabs.get_by_role("button", name="Charts").click()
    until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"]') !== null")
    assert page.url.endswith("?tab=charts")
    page.reload()
    until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"]') !== null")
    turn_to(page, f"run/four-ranks?step={SPIKE}")
    page.get_by_role("dialog", name=f"Step {SPIKE}").wait_for()
    until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"]') !== null")
