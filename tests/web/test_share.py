"""A link that shows one run: it signs in by itself, shows its run, and nothing else of the hub."""

from pathlib import Path

from stepscope.hub.home import tokens_path
from stepscope.hub.security.tokens import Tokens
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from tests.waiting import wait_until
from tests.web.conftest import Opened, turn_to, until
from tests.web.looks import look_in_both_themes
from tests.web.stored import hub_with

START = 1_790_000_000 * 10**9


def _run(id: str) -> Batch:
    writer = Writer(id="w", run=id, project="shared", name=f"name of {id}", wall_ns=START, host="a", world_size=1)
    records: list[Record] = [Metric(START + n * 10**9, n, None, "trainer", {"loss": 1 / (n + 1)}) for n in range(9)]
    records.append(Event(START + 10**10, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"}))
    return Batch(writer, 1, records)


def test_a_link_shows_its_run(tmp_path: Path, show: Opened) -> None:
    """Whoever opens it sees the charts of the run, is refused another, and is told when the link has ended."""
    home = tmp_path / "home"
    with hub_with(home, [_run("mine"), _run("other")]) as hub:
        tokens = Tokens(tokens_path(home))
        tokens.create(["admin"])
        _, text = tokens.create(["share"], project="shared", run="mine", seconds=3600)
        bearer = {"authorization": f"Bearer {text}"}
        wait_until(lambda: hub.request("GET", "/api/runs/mine").status == 401)  # it has read the tokens
        assert hub.request("GET", "/api/runs/mine", None, bearer).status == 200
        page = show(hub, f"share/{text}/mine", fresh=True)
        page.locator("h1", has_text="name of mine").wait_for()
        assert "#/run/mine" in page.url
        turn_to(page, "run/mine?tab=charts")  # one with findings opens with its diagnosis
        until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn > 0")
        assert "sst_" not in page.evaluate("document.cookie")
        look_in_both_themes(page, "a shared run")
        turn_to(page, "run/other")
        page.get_by_text("this link shows the run mine and nothing else").first.wait_for()
        ended = show(hub, "share/sst_00000000_00/other", fresh=True)
        ended.get_by_text("This link shows nothing any more").wait_for()
        look_in_both_themes(ended, "a link that has ended")
        show.forgive("40")
