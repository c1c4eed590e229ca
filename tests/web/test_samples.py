"""The samples of a run on the page: the table by step, search, whole rows, and two steps or runs side by side."""

from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.model.names import EVENT_FINISHED, EVENT_STARTED, SCOPE_SAMPLES
from stepscope.model.records import Event, Log, Metric, Record
from tests.cli.journals import START, write
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, until
from tests.web.looks import SIZES, look_in_both_themes, look_over

STEPS, GROUP = 12, 3
HOSTILE = "<img src=x onerror=\"document.documentElement.setAttribute('owned', '1')\">"


def _records(better: str = "") -> Iterator[Record]:
    yield Event(START, None, None, None, None, 9, EVENT_STARTED, {"config": {"lr": 0.1}})
    for step in range(0, STEPS * 10, 10):
        at = START + step * 10**9
        yield Metric(at, step, None, "trainer", {"loss": 1 / (step + 1)})
        for place in range(GROUP):
            row = {
                "prompt": f"question {place}: how many primes are below {place + 2}?",
                "completion": f"{better}answer {place} of step {step}. {HOSTILE}\n" + "and so it goes on. " * 120,
                "reward": place / 10 + step,
                "finish_reason": "stop",
            }
            yield Log(at + place, step, None, None, None, 9, "rollouts", row, SCOPE_SAMPLES)
    yield Log(START, 110, None, None, None, 9, "eval", {"text": "evaluated"}, SCOPE_SAMPLES)
    yield Event(START + STEPS * 10**10, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"})


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with two runs that have samples, and one that has none."""
    home = tmp_path_factory.mktemp("samples")
    write(home, "first", _records(), name="first")
    write(home, "second", _records("better "), name="second")
    write(home, "plain", [Metric(START, 0, None, "trainer", {"loss": 1.0})], name="plain")
    made = RunningHub(home).start()
    wait_until(
        lambda: all(made.request("GET", f"/api/runs/{run}").status == 200 for run in ("first", "second", "plain"))
    )
    yield made
    made.kill()


def cells(page: Any) -> list[str]:
    """The first line of the second column of the table."""
    return [str(each).split(". ")[0] for each in page.locator(".sample-row td:nth-child(2)").all_inner_texts()]


def test_the_table_follows_the_slider(hub: RunningHub, show: Opened) -> None:
    """The last step comes first; slider and arrows lead to others, and the address names the step."""
    page = show(hub, "run/first")
    page.get_by_role("button", name="Samples").click()
    until(page, "document.querySelectorAll('.sample-row').length === 3")
    assert cells(page) == [f"answer {place} of step 110" for place in range(GROUP)]
    page.get_by_label("Step: earlier").click()
    until(page, "document.querySelector('.sample-row')?.innerText.includes('of step 100')")
    page.get_by_label("Step", exact=True).press("Home")
    until(page, "document.querySelector('.sample-row')?.innerText.includes('of step 0.')")
    assert "on=0" in page.url
    page.get_by_label("Order").select_option("-reward")
    until(page, "document.querySelector('.sample-row')?.innerText.includes('answer 2')")
    page.get_by_label("Table").select_option("eval")
    until(page, "document.querySelector('.sample-row')?.innerText.includes('evaluated')")


def test_a_row_is_read_whole_with_its_prompt_elsewhere(hub: RunningHub, show: Opened) -> None:
    """A click opens the whole text, as text, and all rows of the prompt; Escape closes it."""
    page = show(hub, "run/first?tab=samples&on=50")
    page.locator(".sample-row").nth(1).click()
    drawer = page.get_by_role("dialog", name="Sample")
    drawer.get_by_text("The same prompt").wait_for()
    look_in_both_themes(page, "a sample")
    text = drawer.locator(".sample-whole").nth(1).inner_text()
    assert text.startswith("answer 1 of step 50. <img")
    assert text.count("and so it goes on.") == 120
    until(page, f"document.querySelectorAll('.sample-same li').length === {STEPS - 1}")
    assert page.locator("html").get_attribute("owned") is None
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('.drawer')")


def test_search_goes_over_all_steps(hub: RunningHub, show: Opened) -> None:
    """A text is found at any step, newest first; none says so."""
    page = show(hub, "run/first?tab=samples")
    page.get_by_label("Search all steps").fill("ANSWER 2 of step 7")
    until(page, "document.querySelectorAll('.sample-row').length === 1")
    assert page.locator(".sample-row td").first.inner_text() == "70"
    page.get_by_label("Search all steps").fill("nowhere at all")
    page.get_by_text("No row has this text").wait_for()


def test_two_steps_and_two_runs_side_by_side(hub: RunningHub, show: Opened) -> None:
    """Each prompt has its answers of both steps, or of both runs, beside each other."""
    page = show(hub, "run/first?tab=samples&on=100")
    page.get_by_role("button", name="Compare with another step").click()
    pair = page.locator(".sample-pair").first
    pair.locator(".sample-side").nth(1).get_by_text("answer 0 of step 0.").wait_for()
    assert "answer 0 of step 100" in pair.locator(".sample-side").first.inner_text()
    page.get_by_role("button", name="Stop comparing").click()
    page.get_by_label("another run").fill("second")
    page.get_by_label("another run").press("Enter")
    pair.locator(".sample-side").nth(1).get_by_text("better answer 0 of step 100.").wait_for()


def test_the_inspector_leads_to_the_samples_of_its_step(hub: RunningHub, show: Opened) -> None:
    """A step says how many rows it has, with a link to them."""
    page = show(hub, "run/first?step=30")
    page.get_by_role("link", name="3 in rollouts").click()
    until(page, "document.querySelector('.sample-row')?.innerText.includes('of step 30')")


def test_a_run_without_samples_has_no_such_tab(hub: RunningHub, show: Opened) -> None:
    """Nothing is shown of what is not there."""
    page = show(hub, "run/plain")
    page.get_by_role("button", name="Files").wait_for()
    assert page.get_by_role("button", name="Samples").count() == 0


@SIZES
def test_the_views_fit_and_are_accessible(hub: RunningHub, show: Opened, width: int, theme: str) -> None:
    """The table, the comparison and the open row, on both widths and in both themes."""
    views = ("run/first?tab=samples", "run/first?tab=samples&on=100&vs=0", "run/first?tab=samples&vs_run=second")
    look_over(show(hub, views[0], width=width, theme=theme), hub, views)
