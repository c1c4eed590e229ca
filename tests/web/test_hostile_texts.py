"""Every text of a run, a project and a person that looks like HTML is shown as text: no view runs or loads it."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import stepscope
from stepscope.cli.main import main
from stepscope.hub.home import tokens_path
from stepscope.hub.security.tokens import Tokens
from stepscope.notebook.cell_document import document
from stepscope.notebook.shown_runs import JournalRun
from stepscope.notebook.view import View
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import Browser, Opened, turn_to, until

SCRIPT = "window.__owned=1"
X = f"""'"></title></style></textarea><img src=x onerror="{SCRIPT}"><script>{SCRIPT}</script><svg onload={SCRIPT}>"""
FRAMED = "/files/x'"
"""What HTML that was logged asks for in its frame, where no script runs and nothing is loaded."""
LINKS = f"""[one](javascript:{SCRIPT}) [two]( JaVaScRiPt:{SCRIPT}) [three](data:text/html,<script>{SCRIPT}</script>)
![four](x) <a href="javascript:{SCRIPT}">five</a> <javascript:{SCRIPT}> [six](//example.org/{SCRIPT})"""
MARKDOWN = f"# {X}\n\n{LINKS}\n\n> {X}\n\n- {X}\n\n```chart\n{X}\nwhere: {X}\n```\n\n```{X}\n{X}\n```\n"
PROJECT = X[:200]
BOARD = json.dumps({"title": X, "text": MARKDOWN, "charts": [{"title": X, "keys": [f"trainer/{X}"], "unit": X}]})
RULES = json.dumps({"rules": [{"name": "hostile", "key": "trainer/*", "when": "> 5", "message": X}]})
HARMLESS = """(page) => {
  const framed = (each) => each.getAttribute('sandbox') === '' && each.getAttribute('src').startsWith('api/');
  const leads = (each) => each.download || /^(https?:|mailto:)/.test(each.href);
  const loads = (each) => /^(https?:|blob:|data:image|$)/.test(each.src);
  const kinds = { A: leads, IFRAME: framed };
  const handles = (each) => each.hasAttribute('onerror') || each.hasAttribute('onload');
  return [...page.querySelectorAll('a[href], img, script, iframe, [onerror], [onload]')]
    .filter((each) => handles(each) || !(kinds[each.tagName] ?? loads)(each))
    .map((each) => each.outerHTML);
}"""


def _record(home: Path) -> str:
    run = stepscope.init(
        PROJECT, X, {X: X, "nested": {X: [X]}}, home=home, run_id="hostile", probes=False, tags={"t": X, "x": "y"},
        notes=MARKDOWN, group=X, job_type=X, otel=False, quiet=True,
    )  # fmt: skip
    run.live(text=X)
    for step in range(200):
        with run.step(step), run.span(X[:100], a=X):
            value = 9.0 if step == 150 else 1 / (step + 1)
            run.log({"loss": value, X[:150]: value}, category="trainer")
    run.log({f"{X}image": stepscope.Image(np.zeros((4, 4, 3), "u1"), caption=X)}, step=3)
    run.log({"html": stepscope.Html(X), "file": stepscope.File(X.encode(), name=X[:100], caption=X)}, step=3)
    run.log({"curve": stepscope.Curve([1, 2], {X: [1, 2], "b": [2, 1]}, caption=X, x_name=X, y_name=X)}, step=3)
    run.log({"table": stepscope.Table([X, "b"], [[X, 1], [MARKDOWN, 2]])}, step=3)
    run.sample({X: X, "prompt": X, "completion": MARKDOWN}, step=3)
    run.sample({"prompt": X, "completion": LINKS}, step=5)
    run.event(X, {X: X})
    run.alert(X, "ERROR", X, step=151)
    logging.getLogger(X[:50]).error(X)
    run.checkpoint(f"/{X}", step=7, note=X)
    run.artifact(f"s3://{X}", name=X[:60], kind=X)
    run.use(X[:60])
    run.finish()
    return run.id


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with a run, a project, a dashboard, a view, rules and marks whose texts are all hostile."""
    hub = RunningHub(tmp_path_factory.mktemp("hostile") / "home").start()
    _record(hub.home)
    wait_until(lambda: hub.request("GET", "/api/runs/hostile/findings").json().get("complete"))
    here = f"project={quote(PROJECT)}"
    for method, path, body in (
        ("PUT", "/api/dashboards/hostile", {"yaml": BOARD}),
        ("POST", f"/api/views?{here}", {"name": X[:100], "query": f"filter={quote(X)}"}),
        ("PUT", f"/api/views?{here}", {"notes": MARKDOWN}),
        ("PUT", "/api/alerts/rules", {"yaml": RULES}),
        ("POST", "/api/alerts/silences", {"rule": X, "for": "1h", "why": X}),
        ("PATCH", "/api/runs/hostile", {"tags": {X[:64]: X}}),
    ):
        answer = hub.request(method, path, json.dumps(body).encode(), {"content-type": "application/json"})
        assert answer.status == 200, (path, answer.body)
    yield hub
    hub.kill()


VIEWS = {
    "projects": ".vt-row",
    f"project/{quote(PROJECT, safe='')}?view=none": ".chart-plot[data-drawn]:not([data-drawn='0'])",
    f"project/{quote(PROJECT, safe='')}?view=none&tab=notes": ".project-notes .markdown",
    "runs": ".vt-row[data-id='hostile']",
    "runs?group=config." + quote(X): "main > *",
    "run/hostile?tab=charts": ".chart[data-key='trainer/loss']",
    "run/hostile?tab=diagnosis": ".diagnosed",
    "run/hostile?tab=overview": ".notes .markdown",
    "run/hostile?tab=files": "main :has-text('onerror')",
    "run/hostile?tab=samples": "main :has-text('onerror')",
    "run/hostile?step=150": ".step .findings li",
    "compare?run=hostile&run=hostile": ".chart",
    "traces?run=hostile": ".trace-table .vt-row",
    "traces?run=hostile&at=150": "main > *",
    "logs?run=hostile": ".log-line",
    "dashboards/hostile?run=hostile": ".dash-grid, .dash-none",
    "dashboards/hostile?run=hostile&edit=1": ".dash-editor",
    "alerts": ".page-head h1",
    "alerts?tab=rules": "main > *",
    "health": "[aria-label='Ingest']",
    f"sql?q={quote('SELECT ' + repr(X[:20]) + ' AS x')}": ".sql-schema li",
    f"runs?filter={quote(X)}": "main > *",
    f"run/{quote(X, safe='')}": "main > *",
    quote(X, safe=""): "main > *",
}
"""The address of each view, and what it shows once it has its texts."""


def test_no_view_runs_what_it_shows(hostile: RunningHub, show: Opened) -> None:
    """Nothing in a text becomes an element, a link that runs a script, or a request; the policy has nothing to stop."""
    page = show(hostile, fresh=True, height=4000)
    page.add_init_script("addEventListener('securitypolicyviolation', (stopped) => { window.__stopped = stopped; });")
    page.reload()
    for address, content in VIEWS.items():
        turn_to(page, address)
        page.locator(content).first.wait_for()
        until(page, "!document.querySelector('.loading')")
        if address.endswith("tab=files"):
            page.locator("iframe[sandbox='']").wait_for()
        assert page.evaluate("[window.__owned, String(window.__stopped)]") == [None, "undefined"], address
        assert page.evaluate(f"({HARMLESS})(document)") == [], address
    here = [each for each in show.complaints if FRAMED not in each]
    assert not [each for each in here if "Content Security" in each or "/x" in each]
    page.evaluate("(text) => document.body.insertAdjacentHTML('beforeend', text)", X)  # what a view must not do
    assert page.evaluate(f"({HARMLESS})(document)") != []
    until(page, "window.__stopped")
    assert page.evaluate("window.__owned") is None
    show.close()
    show.complaints.clear()


def test_a_link_to_the_run_runs_nothing(tmp_path: Path, show: Opened) -> None:
    """Whoever is sent a link sees the texts of the run as they are."""
    hub = RunningHub(tmp_path / "home").start()
    try:
        _record(hub.home)
        wait_until(lambda: hub.request("GET", "/api/runs/hostile/findings").json().get("complete"))
        tokens = Tokens(tokens_path(hub.home))
        tokens.create(["admin"])
        _, text = tokens.create(["share"], project=PROJECT, run="hostile", seconds=3600)
        wait_until(lambda: hub.request("GET", "/api/runs/hostile").status == 401)
        page = show(hub, f"share/{text}/hostile", fresh=True)
        page.locator("h1", has_text="onerror").wait_for()
        assert page.evaluate("window.__owned") is None
        assert page.evaluate(f"({HARMLESS})(document)") == []
        show.forgive("40")
    finally:
        show.close()
        hub.kill()


@pytest.mark.parametrize("what", ["report", "cell"])
def test_no_document_runs_what_it_shows(hostile: RunningHub, browser: Browser, tmp_path: Path, what: str) -> None:
    """So it is in a report that is sent by mail, and in the cell of a notebook."""
    target = tmp_path / "page.html"
    if what == "report":
        assert main(["report", "hostile", "-o", str(target), "--home", str(hostile.home)]) == 0
    else:
        view = View((JournalRun(hostile.home, "hostile"),), ()).read(60.0)
        target.write_text(document(view), encoding="utf-8")
    page: Any = browser._driven.new_context().new_page()
    said: list[str] = []
    page.on("console", lambda each: said.append(each.text))
    page.on("request", lambda each: said.append(each.url) if not each.url.startswith(("file:", "blob:")) else None)
    page.goto(target.as_uri())
    until(page, "document.body.innerText.includes('onerror')")
    assert page.evaluate("window.__owned") is None
    assert page.evaluate(f"({HARMLESS})(document)") == []
    assert said == []
    page.context.close()


def test_every_answer_of_html_has_the_policy(hostile: RunningHub) -> None:
    """The page, its parts, errors and files of runs: none may be framed, guessed at, or run what is not the hub's."""
    listed = hostile.request("GET", "/api/runs/hostile/files?limit=100").json()["files"]
    paths = ["/", "/index.html", "/api", "/nothing", "/api/nothing", f"/{quote(X)}", "/api/runs/%00", "/static/x"]
    paths += [f"/api/runs/hostile/files/content?name={quote(each['name'])}" for each in listed]
    assert len(paths) > 10
    for path in paths:
        answer = hostile.request("GET", path)
        policy = answer.headers.get("content-security-policy", "")
        assert "default-src 'none'" in policy or "sandbox" in policy, path
        assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", ""), path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        if "/files/content" in path:
            assert "html" not in answer.headers["content-type"], path
