"""A name in which nothing is seen of some characters, or that turns the order of others, shows them on every view."""

from collections.abc import Iterator

import pytest

import stepscope
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Opened, turn_to

TURNED = "loss\u202egnp.exe"
SEEN = "loss\\u202egnp.exe"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub."""
    running = RunningHub(tmp_path_factory.mktemp("invisible") / "home").start()
    yield running
    running.kill()


def test_names_keys_and_tags_show_what_cannot_be_seen(hub: RunningHub, show: Opened) -> None:
    """The table of runs, the head of a run, its tags, charts, configuration and title have the escaped characters."""
    with stepscope.init(
        "p", TURNED, {f"config{TURNED}": TURNED}, home=hub.home, run_id="turned", tags={f"t{TURNED}": "lo\u200bss"},
        probes=False, otel=False,
    ) as run:  # fmt: skip
        for step in range(9):
            run.log({f"key{TURNED}": step / 10}, step=step)
    wait_until(lambda: hub.request("GET", "/api/runs/turned").status == 200)
    page = show(hub, "runs")
    page.locator(".vt-row[data-id='turned']").get_by_text(SEEN, exact=True).wait_for()
    for tab, seen in (("overview", f"config{SEEN}"), ("charts", f"key{SEEN}")):
        turn_to(page, f"run/turned?tab={tab}")
        page.get_by_text(seen).locator("visible=true").first.wait_for()
        page.get_by_text(f"t{SEEN}=lo\\u200bss").wait_for()
        page.get_by_role("heading", name=SEEN, exact=True).wait_for()
        assert "\u202e" not in page.locator("body").inner_text()
        assert SEEN in page.title()
