"""A run is stopped on its page, after a question, and its live settings are changed there."""

import re
import threading
from collections.abc import Iterator

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, until
from tests.web.looks import look_in_both_themes


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """One hub for all tests of this file."""
    running = RunningHub(tmp_path_factory.mktemp("control") / "home").start()
    yield running
    running.kill()


class Training:
    """A run of this process that goes on until it is asked to stop, or the test ends."""

    def __init__(self, hub: RunningHub, id: str, *, looks: bool = True) -> None:
        self.run = stepscope.init("p", home=hub.home, run_id=id, probes=False, otel=False)
        self.live = self.run.live(lr_scale=1.0, mode="fast", augment=True)
        self._looks, self._over = looks, threading.Event()
        self._thread = threading.Thread(target=self._train)
        self._thread.start()

    def _train(self) -> None:
        step = 0
        while not self._over.wait(0.02) and not (self._looks and self.run.stop_requested):
            with self.run.step(step):
                self.run.log({"loss": 1 / (step + 1)})
            step += 1
        self.run.finish()

    def end(self) -> None:
        """End it, whatever it was asked."""
        self._over.set()
        self._thread.join()


@pytest.fixture
def training(hub: RunningHub, request: pytest.FixtureRequest) -> Iterator[Training]:
    """A run that goes on; its id is the name of the test."""
    made = Training(hub, request.node.name.replace("_", "-"), looks="looks" not in request.node.name)
    wait_until(lambda: hub.request("GET", f"/api/runs/{made.run.id}/control").json().get("settings"))
    yield made
    made.end()


def test_stopping(hub: RunningHub, training: Training, show: Opened) -> None:
    """Cancel asks for nothing; Stop asks the program, which ends by itself, and the page says after which step."""
    page = show(hub, f"run/{training.run.id}")
    page.get_by_role("button", name="Stop…").click()
    look_in_both_themes(page, "the question before a stop")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert not training.run.stop_requested
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    page.locator(".run-asked").wait_for()
    assert "Stop requested by local" in page.locator(".run-asked").inner_text() or "Stopped" in page.inner_text(
        ".run-asked"
    )
    page.locator(".run-asked.stopped").wait_for()
    training.end()
    last = hub.request("GET", f"/api/runs/{training.run.id}").json()["step"]
    told = page.inner_text(".run-asked")
    assert re.match(r"Stopped after step [\d,. \u2009\u202f]+, as local requested", told), told
    assert re.sub(r"\D", "", told.partition(", as")[0]) == str(last)
    assert page.get_by_role("button", name="Stop…").count() == 0


def test_a_program_that_never_looks(hub: RunningHub, training: Training, show: Opened) -> None:
    """The page says that the program heard the request and has not looked for it."""
    assert hub.request("POST", f"/api/runs/{training.run.id}/stop", None, {"x-stepscope-user": "ada"}).status == 200
    page = show(hub, f"logs?run={training.run.id}")
    page.locator(".run-asked.received").wait_for()
    assert "by ada" in page.inner_text(".run-asked")
    assert "has not looked at run.stop_requested" in page.inner_text(".run-asked")


def test_changing_live_settings(hub: RunningHub, training: Training, show: Opened) -> None:
    """A field for each setting sends a value of its kind; a wrong one is refused in words, a right one is applied."""
    page = show(hub, f"run/{training.run.id}?tab=overview")
    panel = page.get_by_role("region", name="Live settings", exact=True)
    field = panel.get_by_label("New value of lr_scale")
    field.fill("fast")
    field.press("Enter")
    page.get_by_text("lr_scale must be a number").wait_for()
    field.fill("0.25")
    field.press("Enter")
    wait_until(lambda: training.live.lr_scale == 0.25)
    panel.get_by_label("New value of augment").select_option("false")
    panel.get_by_role("row", name="augment").get_by_role("button", name="Set").click()
    wait_until(lambda: training.live.augment is False)
    panel.get_by_label("New value of mode").fill("7")
    panel.get_by_label("New value of mode").press("Enter")
    wait_until(lambda: training.live.mode == "7")
    until(
        page,
        "document.querySelector('[aria-label=\"Table of live settings\"]').innerText.match(/applied/g)?.length === 3",
    )
    show.forgive("400")


def test_a_run_that_has_ended_has_no_button(hub: RunningHub, training: Training, show: Opened) -> None:
    """Nothing can be asked of it."""
    training.end()
    wait_until(lambda: not hub.request("GET", f"/api/runs/{training.run.id}/control").json()["allowed"])
    page = show(hub, f"run/{training.run.id}")
    page.get_by_role("button", name="Manage").wait_for()
    assert page.get_by_role("button", name="Stop…").count() == 0


def test_replaced_checkpoints_are_folded(hub: RunningHub, show: Opened) -> None:
    """A path that is written again has one row; its earlier versions are shown when they are asked for."""
    with stepscope.init("p", home=hub.home, run_id="again", probes=False, otel=False) as made:
        for step in range(4):
            made.checkpoint("/ckpt/last", step=step)
    wait_until(lambda: hub.request("GET", "/api/runs/again/checkpoints").json().get("total") == 4)
    panel = show(hub, "run/again?tab=overview").get_by_role("region", name="Checkpoints", exact=True)
    panel.get_by_text("version 4").wait_for()
    assert panel.locator("tbody tr").count() == 1
    panel.get_by_role("button", name="Show 3 that later ones at the same path replaced").click()
    panel.get_by_text("version 1, replaced").wait_for()
    assert panel.locator("tbody tr").count() == 4


def test_checkpoints_and_lineage(hub: RunningHub, show: Opened) -> None:
    """The overview marks the best checkpoint by the chosen metric, and leads to parent and children."""
    for run, parent in (("root", None), ("fork", "root")):
        with stepscope.init(
            "p", home=hub.home, run_id=run, parent=parent, from_step=2, probes=False, otel=False
        ) as made:
            for step, loss in enumerate((3.0, 1.0, 2.0)):
                made.log({"val/loss": loss, "accuracy": step / 10}, step=step)
                made.checkpoint(f"/ckpt/step-{step}", step=step)
    wait_until(lambda: hub.request("GET", "/api/runs/fork/checkpoints").json().get("total") == 3)
    page = show(hub, "run/fork?tab=overview")
    panel = page.get_by_role("region", name="Checkpoints", exact=True)
    panel.get_by_label("best by").select_option("val/loss")
    until(page, "document.querySelector('.checkpoints tr:has([aria-label=best])')?.innerText.includes('step-1')")
    panel.get_by_label("best by").select_option("accuracy")
    until(page, "document.querySelector('.checkpoints tr:has([aria-label=best])')?.innerText.includes('step-2')")
    assert "best=accuracy" in page.url
    assert "forked from root" in page.locator(".described").inner_text().replace("\n", " ")
    page.get_by_role("region", name="Lineage", exact=True).get_by_role("link", name="root").click()
    lineage = page.get_by_role("region", name="Lineage", exact=True)
    page.get_by_role("heading", name="root").wait_for()
    page.get_by_role("button", name="Overview").click()
    lineage.get_by_role("link", name="fork").wait_for()
