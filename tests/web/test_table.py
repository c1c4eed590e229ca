"""The table of runs while things happen: filters and orders stay true, columns suit all runs, the chooser fits."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.model import names
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, turn_to, until
from tests.web.views.recorded import native


def send(hub: RunningHub, run: str, step: int, metrics: dict[str, Any] | None = None, *, ends: bool = False) -> None:
    """Send a run's values at a step, and wait until they are stored; the step numbers the batch too."""
    now = time.time_ns()
    records: list[Record] = [Event(now, None, None, None, None, 9, names.EVENT_STARTED, {})]
    records.append(Metric(now, step, None, None, metrics or {"trainer/loss": 1.0}))
    if ends:
        records.append(Event(now + 1, None, None, None, None, 9, names.EVENT_FINISHED, {"status": "finished"}))
    writer = Writer(id=f"of-{run}", run=run, project="web", name=run, wall_ns=now)
    answer = hub.post("/v1/stepscope", native([Batch(writer, step, records)]), "application/octet-stream")
    assert answer.status == 200, answer.body
    path = "/api/runs"
    wait_until(lambda: (run, step) in {(each["id"], each["step"]) for each in hub.request("GET", path).json()["runs"]})


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub of its own."""
    running = RunningHub(tmp_path / "home").start()
    yield running
    running.kill()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with the runs of several tests, each of which looks for its own."""
    running = RunningHub(tmp_path_factory.mktemp("crowded") / "home").start()
    yield running
    running.kill()


ROWS = "[...document.querySelectorAll('.vt-row')].map((row) => row.dataset.id).join()"


def test_a_run_that_ends_leaves_and_enters(hub: RunningHub, show: Opened) -> None:
    """Under `status = running` it goes; under `status = finished` it comes, though nobody knew of it before."""
    send(hub, "lv0", 1)
    running = show(hub, "runs?filter=status+%3D+running")
    finished = show(hub, "runs?filter=status+%3D+finished+and+name+%3D+lv1")
    running.get_by_text("lv0").first.wait_for()
    finished.get_by_text("No run matches this filter").wait_for()
    send(hub, "lv1", 1)
    until(running, f"{ROWS} === 'lv1,lv0'")
    send(hub, "lv1", 2, ends=True)
    until(finished, f"{ROWS} === 'lv1'")
    until(running, f"{ROWS} === 'lv0'")
    running.get_by_text("1 of 2 runs").wait_for()


def test_an_order_stays_true(hub: RunningHub, show: Opened) -> None:
    """Sorted by step, a run that overtakes another goes above it."""
    send(hub, "fast", 1)
    send(hub, "slow", 10)
    page = show(hub, "runs?sort=-step")
    until(page, f"{ROWS} === 'slow,fast'")
    send(hub, "fast", 20)
    until(page, f"{ROWS} === 'fast,slow'")


def test_default_columns_suit_all_runs(hub: RunningHub, show: Opened) -> None:
    """`loss` and `trainer/loss` share a column, and of rewards the mean is taken, not the highest."""
    send(hub, "bare", 1, {"loss": 1.25, "rl/reward_max": 99.0, "rl/reward_mean": 3.5})
    send(hub, "sorted", 1, {"trainer/loss": 2.75, "rl/reward_max": 98.0, "rl/reward_mean": 4.5})
    page = show(hub, "runs")
    page.get_by_role("columnheader", name="reward").wait_for()
    until(page, f"{ROWS} === 'sorted,bare'")
    rows = {row.get_attribute("data-id"): row.inner_text() for row in page.locator(".vt-row").all()}
    assert "1.25" in rows["bare"]
    assert "3.5" in rows["bare"]
    assert "2.75" in rows["sorted"]
    assert "4.5" in rows["sorted"]
    send(hub, "likelihood", 1, {"nll": 5.25})
    send(hub, "evaluated", 1, {"val/loss": 6.75})
    turn_to(page, "runs?filter=metrics.loss+%3E+5")
    until(page, f"{ROWS} === 'evaluated,likelihood'")
    until(page, "document.querySelectorAll('.vt-row .spark polyline').length === 2")
    assert page.locator(".vt-row .mono").all_inner_texts() == ["6.75", "5.25"]
    turn_to(page, "runs?filter=metrics.reward+%3E+0")
    loss = page.get_by_role("button", name="loss", exact=True)
    loss.click()
    until(page, f"{ROWS} === 'sorted,bare'")
    loss.click()
    until(page, f"{ROWS} === 'bare,sorted'")


def test_tags_are_readable(crowded: RunningHub, show: Opened) -> None:
    """Tags are shown whole as far as they fit, the others as a number; only a tag that fits nowhere is cut."""
    send(crowded, "tagged", 1)
    send(crowded, "long-tag", 1)
    for run, tags in {"tagged": {"x": "1", "smoke": True, "dataset": "c4"}, "long-tag": {"w" * 60: True}}.items():
        body = json.dumps({"tags": tags}).encode()
        answer = crowded.request("PATCH", f"/api/runs/{run}", body, {"content-type": "application/json"})
        assert answer.status == 200, answer.body
    page = show(crowded, "runs", width=1440)
    row = page.locator(".vt-row[data-id=tagged]")
    row.get_by_text("smoke").wait_for()
    assert row.locator(".chip").evaluate_all("(all) => all.every((each) => each.scrollWidth <= each.clientWidth)")
    assert row.locator(".tags-left").inner_text() == "+1"
    assert page.locator(".vt-row[data-id=long-tag] .chip").count() == 1


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_name_does_not_widen_the_chooser(crowded: RunningHub, show: Opened, width: int) -> None:
    """A metric with a name of 300 characters is cut, can be read in full, and the panel is in the window."""
    send(crowded, f"long-{width}", 1, {"trainer/loss": 1.0, "a" * 300: 2.0})
    page = show(crowded, "runs", width=width, fresh=True)
    page.get_by_text(f"long-{width}").first.wait_for()
    page.get_by_role("button", name="Columns").click()
    panel = page.locator(".menu")
    panel.get_by_title("a" * 300).wait_for()
    box = panel.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert panel.evaluate("(menu) => menu.scrollWidth <= menu.clientWidth")
    page.get_by_role("checkbox", name="a" * 300).check()


def test_spellings_of_a_metric_are_one(crowded: RunningHub, show: Opened) -> None:
    """Runs with loss, train/loss or trainer/loss all have a value and a line, and are compared in one chart."""
    spelled = {"said-bare": "loss", "said-train": "train/loss", "said-trainer": "trainer/loss"}
    for run, key in spelled.items():
        for step in range(1, 4):
            send(crowded, run, step, {key: 1.0 / step}, ends=step == 3)
    page = show(crowded, "runs?filter=said-")
    until(page, "document.querySelectorAll('.vt-row .spark polyline').length === 3")
    assert page.locator(".vt-row .mono").all_inner_texts() == ["0.3333"] * 3
    turn_to(page, "compare?" + "&".join(f"run={run}" for run in spelled))
    until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn === '9'")
    assert page.locator(".chart").count() == 1


def test_gpu_hours_are_a_column_and_in_the_overview(crowded: RunningHub, show: Opened) -> None:
    """They are chosen in the menu; a run whose energy is not known has a dash in the table and says so on its page."""
    send(crowded, "on-gpus", 1, {"system/gpu/0/run_seconds": 9000.0, "system/gpu/0/busy_seconds": 4500.0})
    page = show(crowded, "runs?filter=name+%3D+on-gpus")
    page.get_by_role("button", name="Columns").click()
    for name in ("GPU hours", "GPU kWh", "GPU busy"):
        page.get_by_role("checkbox", name=name).check()
    row = page.locator(".vt-row")
    row.get_by_text("2.5", exact=True).wait_for()
    row.get_by_text("50 %", exact=True).wait_for()
    page.goto(f"{page.url.split('#')[0]}#/run/on-gpus?tab=overview")
    panel = page.get_by_role("region", name="GPUs", exact=True)
    panel.wait_for()
    assert panel.get_by_role("row").all_inner_texts() == ["GPU hours\t2.5", "GPU kWh\tunknown", "GPU busy\t50 %"]
