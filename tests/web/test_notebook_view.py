"""Runs in a notebook, in a browser: the widget as anywidget hosts it, and the frame of a cell without it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="the live view is an anywidget")

import stepscope
from stepscope.notebook.shown_runs import HubRun
from stepscope.notebook.widget import Live
from tests.hub.conftest import RunningHub
from tests.web.conftest import SECONDS, Browser, until

HOST = """async ([state, theme]) => {
  document.body.dataset.jpThemeLight = theme;
  const module = await import(URL.createObjectURL(new Blob([state._esm], { type: "text/javascript" })));
  const listeners = new Set();
  const model = {
    get: (name) => state[name],
    on: (name, call) => name === "change:view" && listeners.add(call),
    off: (name, call) => listeners.delete(call),
  };
  window.change = (view) => { state.view = view; for (const call of listeners) call(); };
  window.leave = await module.default.render({ model, el: document.body.appendChild(document.createElement("div")) });
  window.listening = () => listeners.size;
}"""
FRAME = "document.querySelector('iframe').contentDocument"
DRAWN = f"""[...{FRAME}.querySelectorAll('.chart-plot')].length > 0
  && [...{FRAME}.querySelectorAll('.chart-plot')].every((each) => each.dataset.drawn > 0)"""


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Any]]:
    """Open empty pages; the test fails when one complains, or asks for anything at all."""
    context = browser._driven.new_context()
    complaints: list[str] = []

    def page(width: int = 1440) -> Any:
        made = context.new_page()
        made.set_viewport_size({"width": width, "height": 900})
        made.set_default_timeout(SECONDS)
        made.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        made.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        made.on("request", lambda asked: complaints.append(asked.url) if asked.url.startswith("http") else None)
        return made

    yield page
    context.close()
    assert complaints == []


def hosted(page: Any, shown: Any, *, light: bool = True) -> Any:
    """Host the widget, as a notebook does, and wait for its charts."""
    state = {name: shown.widget.get_state()[name] for name in ("_esm", "page", "view", "height")}
    page.evaluate(HOST, [state, "true" if light else "false"])
    until(page, DRAWN)
    return page


def text(page: Any) -> str:
    """What the frame says."""
    return str(page.evaluate(f"{FRAME}.body.innerText"))


@pytest.mark.parametrize("width", [1440, 390])
def test_a_run_of_the_hub(trained: RunningHub, opened: Callable[..., Any], width: int) -> None:
    """State, findings and charts of the hub's answers, within the width of the notebook; the page is a link."""
    shown = stepscope.show("four-ranks", home=trained.home)
    assert isinstance(shown._view._sources[0], HubRun)  # type: ignore[union-attr]
    page = hosted(opened(width), shown)
    said = text(page)
    assert "crashed" in said or "finished" in said
    assert "step 29" in said
    findings = shown._view.last["findings"]  # type: ignore[union-attr]
    assert findings
    assert all(each["text"] in said for each in findings)
    assert page.evaluate(f"{FRAME}.documentElement.scrollWidth <= {FRAME}.documentElement.clientWidth")
    assert page.evaluate(f"{FRAME}.querySelector('.shown-runs a').href") == f"{trained.url}/#/run/four-ranks"
    assert page.evaluate("window.listening()") == 1
    page.evaluate("window.leave()")
    assert page.evaluate("window.listening()") == 0


def test_it_follows_and_compares(opened: Callable[..., Any], tmp_path: Path) -> None:
    """Two runs of journals are a line each; what the kernel sends next is drawn in the same frame, here a dark one."""
    runs = []
    for name in ("one", "two"):
        run = stepscope.init(home=tmp_path, name=name, probes=False, otel=False, quiet=True)
        for step in range(20):
            run.log({"loss": 1.0 / (step + 1), "accuracy": 0.5}, step=step)
        run.finish()
        runs.append(run.id)
    shown = stepscope.show(runs, home=tmp_path)
    page = hosted(opened(), shown, light=False)
    assert page.evaluate(f"{FRAME}.documentElement.dataset.theme") == "dark"
    until(page, "document.querySelector('iframe').clientHeight < 400")  # no taller than what it shows
    loss = f"{FRAME}.querySelector('[data-key=loss] .chart-plot')"
    before = page.evaluate(f"{loss}.dataset.drawn")
    assert int(before) == 40
    run = stepscope.init(home=tmp_path, run_id=runs[1], probes=False, otel=False, quiet=True)
    run.log({"loss": 0.01}, step=20)
    assert run.flush(60)
    page.evaluate("(view) => window.change(view)", shown._view.read(60.0))  # type: ignore[union-attr]
    until(page, f"{loss}.dataset.drawn === '41'")
    assert "step 20" in text(page)
    run.finish()
    assert isinstance(shown.widget, Live)  # type: ignore[union-attr]
    shown.widget.close()  # type: ignore[union-attr]


def test_the_cell_without_the_widget(trained: RunningHub, opened: Callable[..., Any]) -> None:
    """The HTML of a cell, as it is saved with the notebook, draws the same charts by itself."""
    shown = stepscope.show("four-ranks", home=trained.home, metrics="evaluator/accuracy")
    page = opened()
    page.set_content(shown._repr_html_())
    until(page, DRAWN)
    assert "four-ranks" in page.evaluate(f"{FRAME}.querySelector('.shown-runs a').href")
