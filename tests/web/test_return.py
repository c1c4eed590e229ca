"""The page comes back by itself: what failed while the hub was away is there soon after it is back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, until, wait_for

AWAY = "The hub does not answer"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub with one run that has ended."""
    run = stepscope.init(project="web", name="short", run_id="short", home=tmp_path / "home", probes=False)
    for step in range(5):
        run.log({"loss": 1 / (1 + step)}, step=step, category="trainer")
    run.finish()
    hub = RunningHub(tmp_path / "home").start()
    wait_for(lambda: hub.request("GET", "/api/runs/short").status == 200)
    yield hub
    hub.kill()


@pytest.fixture
def away(show: Opened) -> Iterator[None]:
    """Browsers log what could not be fetched, and we tell it; only other complaints count."""
    yield
    while show.contexts:
        show.contexts.pop().close()
    show.complaints[:] = [each for each in show.complaints if "net::ERR" not in each]


@pytest.mark.usefixtures("away")
def test_a_step_opened_meanwhile_is_shown(there: RunningHub, show: Opened) -> None:
    """The inspector that failed fills when the hub is back; nobody has to press anything."""
    page = show(there, "run/short")
    until(page, "document.querySelector('.chart-plot')?.dataset.drawn > 0")
    there.stop()
    page.evaluate("location.hash = '#/run/short?step=2'")
    dialog = page.get_by_role("dialog", name="Step 2")
    dialog.get_by_text(AWAY).wait_for()
    there.start()
    dialog.get_by_text("trainer/loss").first.wait_for()
    assert dialog.get_by_text(AWAY).count() == 0


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    ("view", "sign"), [("sql", ".sql-editor"), ("traces", ".trace-found"), ("run/short", ".facts")]
)
def test_a_view_that_was_not_loaded_yet_is_shown(there: RunningHub, show: Opened, view: str, sign: str) -> None:
    """A module that could not be fetched is fetched when the hub is back, and the address is as it was."""
    page = show(there, "runs")
    page.get_by_text("short").first.wait_for()
    there.stop()
    page.evaluate(f"location.hash = '#/{view}'")
    page.get_by_text(AWAY).wait_for()
    there.start()
    page.locator(sign).wait_for()
    assert page.url.endswith(f"#/{view}")


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(("view", "sign"), [("runs?filter=name+~+short", ".vt-row"), ("logs?q=nothing", ".log-none")])
def test_questions_of_a_view_are_asked_again(there: RunningHub, show: Opened, view: str, sign: str) -> None:
    """A table or log whose first question failed has its answer soon after the hub is back."""
    page = show(there, view)
    page.locator(sign).first.wait_for()
    page.goto(f"{there.url}/#/health")
    page.locator(".health-card").first.wait_for()
    there.stop()
    page.evaluate(f"location.hash = '#/{view}'")
    page.get_by_text(AWAY).wait_for()
    there.start()
    until(page, f"!document.body.innerText.includes('{AWAY}') && document.querySelector('{sign}')")


def test_a_module_that_is_broken_does_not_reload_for_ever(there: RunningHub, show: Opened) -> None:
    """While the hub answers, a view that cannot be loaded is tried once more and then said to be wrong."""
    page = show(there, "runs")
    page.get_by_text("short").first.wait_for()
    loads: list[Any] = []
    page.on("load", lambda loaded: loads.append(loaded))
    page.route("**/views/health.js", lambda route: route.fulfill(status=404))
    page.evaluate("location.hash = '#/health'")
    wait_for(lambda: page.wait_for_timeout(100) or loads)
    page.get_by_text("This view cannot be loaded").wait_for()
    page.wait_for_timeout(12_000)
    assert len(loads) == 1
    show.complaints[:] = [each for each in show.complaints if "404" not in each]
