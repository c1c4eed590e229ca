"""The last value of a metric is one number, with one description, on the page, in the terminal and in a report."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.listed_run import listed_run
from stepscope.cli.main import main
from stepscope.model import formatting
from stepscope.model.last_value import MEANING
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, turn_to, until

KEY, TEXT = "trainer/loss", "mean of 4 ranks at step 299"


@pytest.fixture(scope="module")
def wanted(trained: RunningHub) -> float:
    """The mean of what the four ranks logged at the last step, from their own lines."""
    query = f"key={KEY}&by_rank=true&from=299&to=299"
    lines = trained.request("GET", f"/api/runs/four-ranks/series?{query}").json()["series"]
    values = [line["columns"]["value"][-1] for line in lines]
    assert len(set(values)) == 4
    return float(sum(values) / 4)


def test_the_page_has_it(trained: RunningHub, wanted: float, show: Opened) -> None:
    """In the table of runs and in the head of the chart, over steps, over time and zoomed in."""
    page = show(trained, "runs")
    cell = page.locator('.vt-row[data-id="four-ranks"]').get_by_text(formatting.number(wanted), exact=True)
    cell.wait_for()
    assert cell.get_attribute("title") == f"{KEY}: {TEXT}"
    for look in ("", "&x=time", "&x=relative", "&from=10&to=50"):
        turn_to(page, f"run/four-ranks?q=trainer/loss{look}")
        head = f"document.querySelector('.chart[data-key={json.dumps(KEY)}] .chart-last')"
        until(page, f"{head}?.innerText.trim() === {json.dumps(formatting.number(wanted))}")
        assert page.evaluate(f"{head}.title") == TEXT


def test_the_terminal_has_it(trained: RunningHub, wanted: float, capsys: pytest.CaptureFixture[str]) -> None:
    """`runs`, `show` and `top`, with a hub and from journals alone."""
    home = str(trained.home)

    def said(*line: str) -> Any:
        capsys.readouterr()
        assert main([*line, "--home", home]) == 0
        return capsys.readouterr().out

    number = formatting.number(wanted)
    assert json.loads(said("runs", "--json"))[0]["values"][KEY] == pytest.approx(wanted, rel=1e-12)
    assert listed_run(trained.home, "four-ranks").values[KEY] == pytest.approx(wanted, rel=1e-12)
    assert f"{KEY} {number} " in said("runs")
    shown = json.loads(said("show", "four-ranks", "--json"))["keys"][KEY]
    assert (shown["last"], shown["last_step"]) == (pytest.approx(wanted, rel=1e-12), 299)
    text = said("show", "four-ranks")
    assert re.search(rf"{KEY} +\d+ +{re.escape(number)} ", text)
    assert f"LAST is {MEANING}" in text
    assert json.loads(said("top", "four-ranks", "--json"))["metrics"][KEY]["last"] == pytest.approx(wanted, rel=1e-12)
    assert f"{KEY} {number}" in said("top", "four-ranks", "--once")


def test_the_api_and_a_report_have_it(trained: RunningHub, wanted: float, tmp_path: Path) -> None:
    """The listing of keys, and one file to mail."""
    keys = trained.request("GET", "/api/runs/four-ranks/keys").json()["keys"]
    assert next(each["last"] for each in keys if each["key"] == KEY) == pytest.approx(wanted, rel=1e-12)
    assert main(["report", "four-ranks", "--home", str(trained.home), "-o", str(tmp_path / "run.html")]) == 0
    made = (tmp_path / "run.html").read_text()
    assert f'<b>{KEY}</b><span title="{TEXT}">{formatting.number(wanted)}</span>' in made
