"""The alert view: what fires, why, what can be done about it, and rules tried on a run as they are written."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, turn_to, until
from tests.web.looks import look_in_both_themes

RULES = "rules:\n  - {name: high loss, key: trainer/loss, when: '> 5', severity: ERROR}\n"


@pytest.fixture(scope="module")
def firing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with a run that goes on and whose loss is too high."""
    home: Path = tmp_path_factory.mktemp("alerts") / "home"
    home.mkdir()
    (home / "alerts.yaml").write_text(RULES)
    hub = RunningHub(home).start()
    run = stepscope.init(project="gpt", name="baseline", home=home, quiet=True, probes=False)
    for step in range(30):
        with run.step(step), run.span("forward_backward"):
            run.log({"loss": 9.0 if step >= 20 else 1.0}, category="trainer")
    run.flush()
    wait_until(lambda: _alerts(hub))
    yield hub
    run.finish()
    hub.kill()


def _alerts(hub: RunningHub) -> list[dict[str, object]]:
    found: list[dict[str, object]] = hub.request("GET", "/api/alerts/states?state=open&rule=high%20loss").json()[
        "alerts"
    ]
    return found


def test_what_fires_explains_itself(show: Opened, firing: RunningHub) -> None:
    """The alert is listed with its run and step; opened, it shows the values, spans and logs of its snapshot."""
    page = show(firing, "alerts")
    row = page.locator(".alert-row", has_text="high loss")
    row.wait_for()
    assert "step 20" in row.inner_text()
    row.get_by_role("button", name="trainer/loss").click()
    drawer = page.get_by_role("dialog", name="Alert")
    drawer.get_by_text("forward_backward").first.wait_for()
    look_in_both_themes(page, "an alert")
    assert "trainer/loss: 1 to 9" in drawer.locator("figcaption").inner_text()
    drawer.get_by_role("button", name="Close").click()
    drawer.wait_for(state="detached")


def test_rules_are_tried_while_they_are_written(show: Opened, firing: RunningHub) -> None:
    """A mistake is shown with its place, a right rule with what it would have raised; saved, it is active."""
    page = show(firing, "alerts?tab=rules")
    text = page.get_by_label("Rules as YAML")
    text.fill("rules:\n  - {name: mine, key: trainer/loss, when: more}\n")
    page.get_by_text("Line 2, column 43").wait_for()
    assert page.get_by_role("button", name="Save").is_disabled()
    text.fill("rules:\n  - {name: mine, key: trainer/loss, when: '> 8', message: 'loss {value}'}\n")
    page.get_by_text("1 would have fired").wait_for()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("saved and active").wait_for()
    page.get_by_role("region", name="Active rules").get_by_text("alerts-page.yaml").wait_for()
    page.get_by_role("button", name="Test").first.click()
    page.get_by_text("log accepted the test").wait_for()


def test_a_form_adds_a_rule(show: Opened, firing: RunningHub) -> None:
    """What is chosen becomes a rule of the text, and is tried on the run at once."""
    page = show(firing, "alerts?tab=rules", fresh=True)
    page.get_by_label("Rules as YAML").fill("rules: []\n")
    page.get_by_role("button", name="Add a rule").click()
    page.get_by_label("Metric", exact=True).fill("trainer/loss")
    page.get_by_label("Limit").fill("7")
    page.get_by_label("For so many steps").fill("3")
    page.get_by_label("Severity").select_option("FATAL")
    page.get_by_role("button", name="Add to the text").click()
    assert page.get_by_label("Rules as YAML").input_value() == (
        'rules:\n  - name: "trainer/loss is above 7"\n    key: "trainer/loss"\n    when: "> 7"\n'
        '    for: "3 steps"\n    severity: "FATAL"\n'
    )
    page.get_by_text("1 would have fired").wait_for()


def test_silence_acknowledge_expect(show: Opened, firing: RunningHub) -> None:
    """From the list an alert is acknowledged, silenced and marked as expected; all of it can be seen and removed."""
    page = show(firing, "alerts")
    row = page.locator(".alert-row", has_text="high loss")
    row.get_by_role("button", name="Acknowledge").click()
    row.get_by_text("acknowledged by").wait_for()
    row.get_by_role("button", name="Silence").click()
    row.get_by_role("button", name="for 1 hour").click()
    page.get_by_text("Silenced").wait_for()
    row.get_by_role("button", name="Expected").click()
    row.get_by_role("button", name="in this run").click()
    row.get_by_text("not sent: expected").wait_for()
    page.get_by_text("Silences", exact=True).click()
    rows = page.get_by_role("region", name="Silences").locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == 2
    for _ in range(2):
        before = rows.count()
        rows.first.get_by_role("button", name="Remove").click()
        wait_until(lambda before=before: page.wait_for_timeout(30) or rows.count() < before)
    page.get_by_text("Nothing is silenced").wait_for()


def test_nothing_is_wider_than_the_screen(show: Opened, firing: RunningHub) -> None:
    """On a phone and on a screen, in both themes, every part of the view fits."""
    page = show(firing)
    for tab in ("firing", "history", "rules", "silences"):
        turn_to(page, f"alerts?tab={tab}")
        page.locator(".alerts .panel").first.wait_for()
        for width, theme in itertools.product((390, 1440), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=theme)
            until(page, f"innerWidth === {width} && document.documentElement.dataset.theme === '{theme}'")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (tab, width, theme)
            main = "document.querySelector('main')"
            assert page.evaluate(f"{main}.scrollWidth <= {main}.clientWidth + 1"), (tab, width, theme)
