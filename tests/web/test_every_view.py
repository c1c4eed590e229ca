"""One pass over every view in a browser: each shows its main content, and none complains."""

from typing import Any

import pytest

from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, until

RUN = "four-ranks"
SPIKE = 120
VIEWS = {
    "projects": ".vt-row[data-id='web']",
    "project/web": ".chart[data-key='trainer/loss'] .chart-plot[data-drawn]:not([data-drawn='0'])",
    "runs": ".vt-row[data-id='four-ranks'] .status",
    "runs?group=project": ".vt-row.heading",
    f"run/{RUN}?tab=charts": ".chart[data-key='trainer/loss'] .chart-plot[data-drawn]:not([data-drawn='0'])",
    f"run/{RUN}?tab=diagnosis": ".diagnosed .chart-plot[data-drawn]:not([data-drawn='0'])",
    f"run/{RUN}?tab=files": ".state-title",
    f"run/{RUN}?tab=overview": "[aria-label='Attempts'] tbody tr",
    f"run/{RUN}?step={SPIKE}": ".step .findings li.bad",
    f"compare?run={RUN}&run={RUN}": ".chart",
    f"traces?run={RUN}": ".trace-table .vt-row",
    f"traces?run={RUN}&at={SPIKE}": ".trace-stage canvas",
    f"logs?run={RUN}": "[role=log] .log-line, .log-line",
    f"dashboards/rl?run={RUN}": ".dash-grid, .dash-none",
    "alerts": ".page-head h1",
    "health": "[aria-label='Ingest']",
    "sql": ".sql-schema li",
    "api?open=listRuns": ".endpoint-parts .code",
}
"""The address of each view, and what it shows once it has its data."""
FIRST = {address.split("?")[0].split("/")[0]: address for address in reversed(VIEWS)}
"""An address of each view that a new document is opened with; its others are shown in one that is open."""


@pytest.mark.parametrize(("address", "content"), VIEWS.items(), ids=[address.split("?")[0] for address in VIEWS])
def test_view_shows_its_content(trained: RunningHub, show: Opened, address: str, content: str) -> None:
    """A view opened by its address shows data of the run, without an error on the console."""
    page = show(trained, address, fresh=address in FIRST.values())
    page.locator(content).first.wait_for()
    assert page.locator(".state.failed").count() == 0


def test_trace_opens_in_every_shape(trained: RunningHub, show: Opened) -> None:
    """A trace is drawn as a waterfall, as a flame and as a table of names."""
    spans: Any = trained.request("GET", f"/api/spans?run={RUN}&step={SPIKE}&limit=1").json()["spans"]
    page = show(trained, f"traces?trace={spans[0]['trace_id']}&view=waterfall")
    page.locator(".trace-row").first.wait_for()
    page.get_by_text("Flame", exact=True).click()
    page.locator(".trace-stage canvas").first.wait_for()
    page.get_by_text("Names", exact=True).click()
    page.locator(".trace-stage .vt-row").first.wait_for()


def test_statement_is_answered(trained: RunningHub, show: Opened) -> None:
    """The SQL console runs a statement and shows its rows."""
    page = show(trained, "sql?q=SELECT%201%20AS%20one")
    page.get_by_role("button", name="Run", exact=True).click()
    until(page, "document.querySelector('.sql-cell')?.textContent === '1'")
