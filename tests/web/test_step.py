"""The step inspector: what was slow and why, on which rank, and the way to the steps beside."""

from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened
from tests.web.training import SLOW, SLOW_RANK, SPIKE


def test_slow_step_is_explained(trained: RunningHub, show: Opened) -> None:
    """The sentence names rank and span, the table marks the cell, all ranks stand side by side."""
    page = show(trained, f"run/four-ranks?step={SLOW}")
    dialog = page.get_by_role("dialog", name=f"Step {SLOW}")
    dialog.get_by_text(f"Rank {SLOW_RANK} took").wait_for()
    said = dialog.locator(".findings").inner_text()
    assert "train.data_load took 80" in said
    cause = dialog.locator(".spans td.cause")
    assert cause.count() == 1
    assert cause.locator("xpath=..").get_by_role("rowheader").inner_text() == "train.data_load"
    assert dialog.locator(".spans thead th").count() == 6
    assert dialog.locator(".lane").count() == 4


def test_neighbours_and_anomalies(trained: RunningHub, show: Opened) -> None:
    """One goes on by steps and from anomaly to anomaly; the address follows."""
    page = show(trained, f"run/four-ranks?step={SPIKE}")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Next step").click()
    page.get_by_role("dialog", name=f"Step {SPIKE + 1}").locator('.step[aria-busy="false"]').wait_for()
    assert f"step={SPIKE + 1}" in page.url
    page.keyboard.press("p")
    page.get_by_role("dialog", name=f"Step {SPIKE}").get_by_text("loss spike").first.wait_for()


def test_run_page_names_what_went_wrong(trained: RunningHub, show: Opened) -> None:
    """Spike, NaN, slow batch and crash are on the page, each leading to its step."""
    page = show(trained, "run/four-ranks")
    finding = page.get_by_role("button", name="trainer/loss spiked to 41.5")
    finding.wait_for()
    more = page.locator(".finding.more")
    if more.count():
        more.click()
    said = page.locator(".run-findings").inner_text()
    assert "NaN" in said
    assert "data_load" in said
    assert "crashed" in said
    finding.click()
    page.get_by_role("dialog", name=f"Step {SPIKE}").wait_for()


def test_overview_has_what_the_run_was_told(trained: RunningHub, show: Opened) -> None:
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
