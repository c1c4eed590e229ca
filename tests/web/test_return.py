"""The page comes back by itself: what failed while the hub was away is there soon after it is back."""

from collections.abc import Iterator
from typing import Any

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, leave_view, turn_to, until

AWAY = "The hub does not answer"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with one run that has ended."""
    home = tmp_path_factory.mktemp("return") / "home"
    run = stepscope.init(project="web", name="a short one", run_id="short", home=home, probes=False)
    for step in range(5):
        run.log({"loss": 1 / (1 + step)}, step=step, category="trainer")
    run.finish()
    hub = RunningHub(home).start()
    wait_until(lambda: hub.request("GET", "/api/runs/short").status == 200)
    yield hub
    hub.kill()


@pytest.fixture
def there(started: RunningHub) -> RunningHub:
    """The hub, also after a test that failed while it was away."""
    return started if started.process and started.process.poll() is None else started.start()


@pytest.fixture
def away(show: Opened) -> Iterator[None]:
    """Browsers log what could not be fetched, and we tell it; only other complaints count."""
    yield
    show.forgive("net::ERR")


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
def test_a_view_that_was_not_loaded_yet_is_shown(there: RunningHub, show: Opened) -> None:
    """A module that could not be fetched is fetched when the hub is back, and the address is as it was."""
    signs = {"sql": ".sql-editor", "traces": ".trace-found", "run/short": ".facts"}
    pages = {view: show(there, "runs", fresh=True) for view in signs}
    for page in pages.values():
        page.get_by_text("short").first.wait_for()
    there.stop()
    for view, page in pages.items():
        page.evaluate(f"location.hash = '#/{view}'")
        page.get_by_text(AWAY).wait_for()
    there.start()
    for view, page in pages.items():
        page.locator(signs[view]).wait_for()
        assert page.url.endswith(f"#/{view}")


@pytest.mark.usefixtures("away")
def test_questions_of_a_view_are_asked_again(there: RunningHub, show: Opened) -> None:
    """A table or log whose first question failed has its answer soon after the hub is back."""
    signs = {"runs?filter=name+~+short": ".vt-row", "logs?q=nothing": ".log-none"}
    pages = {view: show(there, view) for view in signs}
    for view, page in pages.items():
        page.locator(signs[view]).first.wait_for()
        leave_view(page)
    there.stop()
    for view, page in pages.items():
        page.evaluate(f"location.hash = '#/{view}'")
        page.get_by_text(AWAY).wait_for()
    there.start()
    for view, page in pages.items():
        until(page, f"!document.body.innerText.includes('{AWAY}') && document.querySelector('{signs[view]}')")


VIEWS = ("runs", "run/short", "compare?run=short", "traces", "logs?run=short", "dashboards", "health", "sql")


@pytest.mark.usefixtures("away")
def test_every_view_says_that_the_hub_is_lost(there: RunningHub, show: Opened) -> None:
    """Whatever is shown, that it is old is said, and no more once the hub is back."""
    page = show(there)
    lost = page.get_by_text("No connection to the hub")
    for view in VIEWS:
        turn_to(page, view)
        until(page, "document.querySelector('main').innerText.length > 40 && !document.querySelector('.state .pulse')")
    there.stop()
    for view in reversed(VIEWS):
        turn_to(page, view)
        lost.wait_for()
    there.start()
    lost.wait_for(state="detached")
    for view in VIEWS:
        turn_to(page, view)
        until(page, "document.querySelector('main').innerText.length > 40 && !document.querySelector('.state .pulse')")
        assert lost.count() == 0


def test_runs_are_called_by_their_names(there: RunningHub, show: Opened) -> None:
    """In titles and lists; the id is at hand where the name stands."""
    named = there.request("GET", "/api/runs/short").json()["name"]
    assert named == "a short one"
    page = show(there, "logs?kind=event")
    page.locator(".log-run [title=short]").first.wait_for()
    until(page, f"document.querySelector('.log-run').innerText === '{named}'")
    turn_to(page, "logs?run=short")
    until(page, f"document.title === 'Logs · {named} · Stepscope'")
    turn_to(page, "compare?run=short")
    until(page, f"document.title === '{named} · Stepscope'")


def test_a_module_that_is_broken_does_not_reload_for_ever(there: RunningHub, show: Opened) -> None:
    """While the hub answers, a view that cannot be loaded is tried once more and then said to be wrong."""
    page = show(there, "runs", fresh=True)
    page.get_by_text("short").first.wait_for()
    loads: list[Any] = []
    page.on("load", lambda loaded: loads.append(loaded))
    page.route("**/health/view.js", lambda route: route.fulfill(status=404))
    page.evaluate("location.hash = '#/health'")
    wait_until(lambda: page.wait_for_timeout(100) or loads)
    page.get_by_text("This view cannot be loaded").wait_for()
    page.wait_for_timeout(12_000)
    assert len(loads) == 1
    show.forgive("404")


def test_missing_shards_are_shown_on_every_view(there: RunningHub, show: Opened) -> None:
    """A banner names the shard while answers lack it, and goes when they do not."""
    page = show(there, "runs")
    page.get_by_text("short").first.wait_for()
    lacking = {"X-Stepscope-Partial": "shard 2 of 2"}

    def without_a_shard(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, **lacking})

    page.route("**/api/alerts**", without_a_shard)
    page.evaluate("location.hash = '#/alerts'")
    page.get_by_text("Results are missing shard 2 of 2.").wait_for()
    page.unroute("**/api/alerts**")
    page.evaluate("location.hash = '#/runs'")
    page.get_by_text("Results are missing shard 2 of 2.").wait_for(state="detached")
