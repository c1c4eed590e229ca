"""The step inspector: what was slow and why, on which rank, and the way to the steps beside."""

import re
from typing import Any

from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, turn_to, until
from tests.web.training import CRASH, NAN, RESUME, SLOW, SLOW_RANK, SPIKE


def test_slow_step_is_explained(trained: RunningHub, show: Opened) -> None:
    """The sentence names rank and span, the table marks the cell, all ranks stand side by side."""
    page = show(trained, f"run/four-ranks?q=trainer/loss&step={SLOW}")
    dialog = page.get_by_role("dialog", name=f"Step {SLOW}")
    dialog.get_by_text(re.compile(f"train.data_load took .* on rank {SLOW_RANK}")).first.wait_for()
    cause = dialog.locator(".spans td.cause")
    assert cause.count() == 1
    assert cause.locator("xpath=..").get_by_role("rowheader").inner_text() == "train.data_load"
    assert dialog.locator(".spans thead th").count() == 6
    assert dialog.locator(".lane").count() == 4


def test_a_step_opened_before_its_run_was_diagnosed_is_explained_later(trained: RunningHub, show: Opened) -> None:
    """Until then the inspector says that it is looking for problems, not that nothing is unusual."""
    page = show(trained, "run/four-ranks?q=trainer/loss", fresh=True)
    page.locator(".run-findings li").first.wait_for()
    early: list[bool] = []

    def not_diagnosed_yet(route: Any) -> None:
        answer = route.fetch()
        early.append(len(early) < 2)
        undone = {"complete": False, "findings": []} if early[-1] else {}
        route.fulfill(response=answer, json={**answer.json(), **undone})

    page.route(f"**/steps/{SPIKE}**", not_diagnosed_yet)
    page.evaluate(f"location.hash += '&step={SPIKE}'")
    findings = page.get_by_role("region", name="Findings")
    findings.get_by_text("Looking for problems").wait_for()
    findings.get_by_text("trainer/loss spiked to 41.5").wait_for()
    assert early == [True, True, False]


def test_a_narrow_screen_cuts_no_number(trained: RunningHub, show: Opened) -> None:
    """What matters stands right beside the names, which stay in sight."""
    page = show(trained, f"run/four-ranks?q=trainer/loss&step={SLOW}", width=390)
    page.get_by_role("dialog").locator(".spans td.cause").wait_for()
    until(
        page,
        """(() => {
          const [cell, head] = [".spans td.cause", ".spans tbody th"].map((each) => document.querySelector(each));
          const gap = cell.getBoundingClientRect().left - head.getBoundingClientRect().right;
          const box = cell.closest(".scroll");
          return Math.abs(gap) < 1.5 || (gap > 0 && box.scrollLeft + box.clientWidth >= box.scrollWidth - 1.5);
        })()""",
    )


def test_the_page_shows_the_verdict_of_the_api(trained: RunningHub, show: Opened) -> None:
    """What is outlined, marked and said about a step is what the API says of it, also where others waited longer."""
    verdicts = []
    page = show(trained, "run/four-ranks?q=trainer/loss")
    for step in (SPIKE, SLOW - 1, SLOW, NAN, 33):
        told = trained.request("GET", f"/api/runs/four-ranks/steps/{step}").json()
        page.evaluate(f"location.hash = '#/run/four-ranks?q=trainer/loss&step={step}'")
        dialog = page.get_by_role("dialog", name=f"Step {step}")
        dialog.locator('.step[aria-busy="false"] .spans tbody tr').first.wait_for()
        outlined = dialog.locator(".spans td.cause").evaluate_all(
            "cells => cells.map((cell) => [cell.parentNode.querySelector('th').innerText, cell.cellIndex - 2])"
        )
        slow = told["slow"]
        assert outlined == ([[slow["span"], slow["rank"]]] if slow else [])
        said = dialog.locator(".findings li").all_inner_texts()
        assert said == [each["text"] for each in told["findings"]] or (
            not told["findings"] and "Nothing unusual" in said[0]
        )
        marked = sum(value["level"] > 0 for metric in told["metrics"] for value in metric["values"])
        assert dialog.locator(".matrix:not(.spans) td[class*='odd-']").count() == marked
        verdicts.append(slow and (slow["span"], slow["rank"]))
    assert verdicts[2] == ("train.data_load", SLOW_RANK)


def test_a_span_has_one_colour_on_every_view(trained: RunningHub, show: Opened) -> None:
    """Inspector, waterfall and table of names draw a name in the same colour."""
    page = show(trained, f"run/four-ranks?q=trainer/loss&step={SLOW}")
    bar = page.get_by_role("dialog").locator(".lane .bar", has_text="all_reduce").first
    in_lanes = bar.evaluate("bar => getComputedStyle(bar).getPropertyValue('--tone')")
    names = """(() => { const style = getComputedStyle(document.documentElement);
        return Array.from({ length: 8 }, (_, at) => style.getPropertyValue(`--series-${at + 1}`)); })()"""
    assert in_lanes in page.evaluate(names)
    turn_to(page, f"traces?run=four-ranks&at={SLOW}&view=waterfall")
    row = page.locator(".trace-row", has_text="all_reduce").first
    row.wait_for()
    drawn = row.locator(".trace-bar").first.evaluate("bar => bar.style.background")
    number = int(drawn.removeprefix("var(--series-").removesuffix(")"))
    assert page.evaluate(names)[number - 1] == in_lanes


def test_neighbours_and_anomalies(trained: RunningHub, show: Opened) -> None:
    """One goes on by steps and from anomaly to anomaly; the address follows."""
    page = show(trained, f"run/four-ranks?q=trainer/loss&step={SPIKE}")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Next step").click()
    page.get_by_role("dialog", name=f"Step {SPIKE + 1}").locator('.step[aria-busy="false"]').wait_for()
    assert f"step={SPIKE + 1}" in page.url
    page.keyboard.press("p")
    page.get_by_role("dialog", name=f"Step {SPIKE}").get_by_text("loss spike").first.wait_for()


def test_what_is_found_is_among_the_anomalies_in_its_own_attempt(trained: RunningHub, show: Opened) -> None:
    """The key comes by every step that findings name, and to the crash in the attempt that crashed."""
    findings = trained.request("GET", "/api/runs/four-ranks/findings").json()["findings"]
    named = sorted({each["step"] for each in findings if each["step"] is not None and SPIKE < each["step"] < CRASH})
    assert {SLOW, NAN, CRASH - 1} <= set(named)
    page = show(trained, f"run/four-ranks?q=trainer/loss&step={SPIKE}")
    page.get_by_role("button", name=f"Next anomaly: step {named[0]}").wait_for()
    for step in named:
        page.keyboard.press("n")
        page.get_by_role("dialog", name=f"Step {step}").locator('.step[aria-busy="false"]').wait_for()
    assert f"step={CRASH - 1}&attempt=1" in page.url
    dialog = page.get_by_role("dialog", name=f"Step {CRASH - 1}")
    dialog.get_by_text("in attempt 1").wait_for()
    page.get_by_role("button", name="Previous anomaly: step").wait_for()


def test_the_next_step_is_looked_at_on_the_same_rank(trained: RunningHub, show: Opened) -> None:
    """The key keeps the rank in the address, and so does the button."""
    page = show(trained, f"run/four-ranks?q=trainer/loss&step={SLOW}&at={SLOW_RANK}")
    page.locator('.step[aria-busy="false"]').wait_for()
    page.keyboard.press("]")
    until(page, f"location.hash.endsWith('&step={SLOW + 1}&at={SLOW_RANK}')")
    page.get_by_role("dialog", name=f"Step {SLOW + 1}").get_by_text(f"on rank {SLOW_RANK}", exact=True).wait_for()


def test_a_crash_leads_to_the_attempt_that_crashed(trained: RunningHub, show: Opened) -> None:
    """The step was done again later: which attempt is shown is said and in the address, and another can be chosen."""
    page = show(trained, "run/four-ranks?q=trainer/loss")
    page.get_by_role("button", name="every rank died without an exit record").click()
    dialog = page.get_by_role("dialog", name=f"Step {CRASH - 1}")
    dialog.get_by_text("in attempt 1").wait_for()
    assert f"step={CRASH - 1}" in page.url
    assert "attempt=1" in page.url
    loss = dialog.get_by_role("row", name="trainer/loss").locator("td").nth(1)
    path = f"/api/runs/four-ranks/steps/{CRASH - 1}"
    said = {}
    for attempt in (1, 2):
        found = trained.request("GET", f"{path}?attempt={attempt}").json()
        said[attempt] = next(each for each in found["metrics"] if each["key"] == "trainer/loss")["values"][0]["value"]
    assert said[1] != said[2]
    assert loss.inner_text().startswith(f"{said[1]:.4g}")
    dialog.get_by_label("attempt").select_option("2")
    dialog.get_by_text("in attempt 2").wait_for()
    until(page, "document.querySelector('.step')?.ariaBusy === 'false'")
    assert "attempt=2" in page.url
    assert loss.inner_text().startswith(f"{said[2]:.4g}")


def test_the_steps_beside_are_of_the_same_attempt(trained: RunningHub, show: Opened) -> None:
    """What came to its end goes no further, though a later attempt did."""
    page = show(trained, f"run/four-ranks?q=trainer/loss&step={CRASH - 2}&attempt=1")
    page.locator('.step[aria-busy="false"]').wait_for()
    page.keyboard.press("]")
    dialog = page.get_by_role("dialog", name=f"Step {CRASH - 1}")
    dialog.locator('.step[aria-busy="false"]').wait_for()
    assert "attempt=1" in page.url
    assert dialog.get_by_role("button", name="Next step").is_disabled()


def test_an_attempt_that_never_came_to_a_step_is_named(trained: RunningHub, show: Opened) -> None:
    """The page says who did, and the newest is one click away."""
    page = show(trained, f"run/four-ranks?q=trainer/loss&step={RESUME - 10}&attempt=2")
    page.get_by_text(f"attempt 2 did not reach step {RESUME - 10}; attempt 1 did").wait_for()
    page.get_by_role("button", name="Show the newest attempt").click()
    page.get_by_role("region", name="Values", exact=True).wait_for()
    show.forgive("404")


def test_a_step_that_is_no_number_is_ignored_and_an_empty_one_lasted_nothing(trained: RunningHub, show: Opened) -> None:
    """No drawer for the one, no duration for the other."""
    page = show(trained, "run/four-ranks?q=trainer/loss&step=abc")
    page.locator(".run-findings li").first.wait_for()
    assert page.get_by_role("dialog").count() == 0
    turn_to(page, "run/four-ranks?q=trainer/loss&step=100000")
    page.get_by_text("No records at this step").wait_for()
    assert "across all ranks" not in page.get_by_role("dialog").inner_text()


def test_run_page_names_what_went_wrong(trained: RunningHub, show: Opened) -> None:
    """Spike, NaN, slow batch and crash are on the page, each leading to its step."""
    page = show(trained, "run/four-ranks?q=trainer/loss")
    finding = page.get_by_role("button", name="trainer/loss spiked to 41.5")
    finding.wait_for()
    more = page.locator(".finding.more")
    if more.count():
        more.click()
    said = page.locator(".run-findings").inner_text()
    assert "NaN" in said
    assert "data_load" in said
    assert "died without an exit record" in said
    finding.click()
    page.get_by_role("dialog", name=f"Step {SPIKE}").wait_for()


def test_overview_shows_the_configuration(trained: RunningHub, show: Opened) -> None:
    """Configuration, commit or platform, attempts and processes are there."""
    page = show(trained, "run/four-ranks?tab=overview")
    page.get_by_role("rowheader", name="model.layers").wait_for()
    attempts = page.get_by_role("region", name="Attempts").locator("tbody tr")
    assert attempts.count() == 2
    assert page.get_by_role("region", name="Processes").locator("tbody tr").count() == 8


def test_goodput_band_is_what_the_spans_add_up_to(trained: RunningHub, show: Opened) -> None:
    """The band is as wide as the shares of the API say, and the longest phase is named first."""
    said = trained.request("GET", "/api/runs/four-ranks/goodput").json()
    page = show(trained, "run/four-ranks?tab=overview")
    goodput = page.get_by_role("region", name="Goodput")
    goodput.locator("tbody tr").first.wait_for()
    shown = {name: share for name, share in said["shares"].items() if share > 0}
    assert {"productive", "idle", "unaccounted"} <= set(shown)
    whole = goodput.locator(".goodput-band").bounding_box()["width"]
    for name, share in shown.items():
        width = goodput.locator(f".goodput-band .of-{name}").bounding_box()["width"]
        assert abs(width / whole - share) < 0.02, name
    longest = max(said["phases"], key=said["phases"].__getitem__)
    assert goodput.locator("tbody tr td").first.inner_text() == longest
    assert "0.0s" not in goodput.inner_text()
