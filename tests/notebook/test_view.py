"""`stepscope.show`: what a view has of runs, from journals and without a hub; nothing of a run is taken for HTML."""

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.journal.key_trend import MOST
from stepscope.model.errors import StepscopeError
from stepscope.notebook.cell_document import ENTRY, WEB, document, modules
from stepscope.notebook.shown_runs import JournalRun
from stepscope.notebook.view import MAX_CHARTS, View
from tests.waiting import wait_until

HOSTILE = "</script><script>alert(1)</script>"


def record(home: Path, name: str, steps: int = 50, **values: float) -> str:
    """A run with a loss, and other metrics, under a name."""
    run = stepscope.init(home=home, name=name, probes=False, otel=False, quiet=True)
    for step in range(steps):
        run.log({"loss": 1 / (step + 1), **values}, step=step)
    run.finish()
    return run.id


def viewed(*sources: JournalRun, metrics: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a view of journals reads."""
    return View(sources, metrics).read(60.0)


def test_runs_are_compared_in_the_charts_they_share(tmp_path: Path) -> None:
    """Each run is a line of the charts it has; the leading metrics come first, and those asked for come alone."""
    first, second = record(tmp_path, "a", accuracy=0.5), record(tmp_path, "b", steps=20, other=1.0)
    view = viewed(JournalRun(tmp_path, first), JournalRun(tmp_path, second))
    assert [(run["name"], run["status"], run["step"]) for run in view["runs"]] == [
        ("a", "finished", 49),
        ("b", "finished", 19),
    ]
    lines = {chart["key"]: [line["run"] for line in chart["lines"]] for chart in view["charts"]}
    assert lines == {"loss": [0, 1], "accuracy": [0], "other": [1]}
    assert next(iter(lines)) == "loss"
    chosen = viewed(JournalRun(tmp_path, first), metrics=("accuracy", "nothing"))
    assert [chart["key"] for chart in chosen["charts"]] == ["accuracy"]


def test_a_view_is_bounded(tmp_path: Path) -> None:
    """Many metrics and many points: the rest is counted, and no spike and no NaN is lost."""
    run = stepscope.init(home=tmp_path, probes=False, otel=False, quiet=True)
    odd = {1001: 99.0, 3500: math.nan, 4500: -math.inf}
    for step in range(20 * MOST):
        run.log({"loss": odd.get(step, math.sin(step))}, step=step)
    run.log({f"m{at:02}": 1.0 for at in range(40)}, step=1)
    run.finish(timeout=60)
    view = viewed(JournalRun(tmp_path, run.id))
    assert (len(view["charts"]), view["more"]) == (MAX_CHARTS, 41 - MAX_CHARTS)
    (line,) = view["charts"][0]["lines"]
    columns = line["columns"]
    assert line["total"] == sum(columns["count"]) == 20 * MOST
    assert MOST // 2 < len(columns["x"]) <= MOST
    assert columns["x"] == sorted(columns["x"])
    lengths = [last - first for first, last in zip(columns["x"], columns["x_last"], strict=True)]
    assert len(set(lengths[:-1])) == 1  # early steps are as fine as late ones
    for step, (name, value) in {1001: ("max", 99.0), 3500: ("flags", 1), 4500: ("flags", 4)}.items():
        at = next(at for at, last in enumerate(columns["x_last"]) if last >= step)
        assert columns[name][at] == value
    json.dumps(view, allow_nan=False)


def test_a_view_goes_on_with_its_run(tmp_path: Path) -> None:
    """Journals are read on where they were; findings of the trainer come along."""
    run = stepscope.init(home=tmp_path, probes=False, otel=False, quiet=True)
    view = View([JournalRun(tmp_path, run.id)])
    for last in (9, 19):
        for step in range(last - 9, last + 1):
            run.log({"loss": 1.0}, step=step)
        run.alert("diverged", "ERROR", f"at {last}", step=last)
        assert run.flush(30)
        read = view.read(60.0)
        assert (read["runs"][0]["step"], read["runs"][0]["status"]) == (last, "running")
        assert len(read["charts"][0]["lines"][0]["columns"]["x"]) == last + 1
        assert not view.ended
    assert [(each["text"], each["severity"], each["step"]) for each in read["findings"]] == [
        ("at 9", "ERROR", 9),
        ("at 19", "ERROR", 19),
    ]
    run.finish()
    view.read(60.0)
    assert view.ended


def test_names_stay_text(tmp_path: Path) -> None:
    """A run and a metric whose names end a script are data of the document, inside one attribute of the cell."""
    shown = stepscope.show(record(tmp_path, HOSTILE, **{HOSTILE: 1.0}), home=tmp_path)
    assert isinstance(shown._repr_html_(), str)
    held = document(viewed(JournalRun(tmp_path, shown._view.last["runs"][0]["id"])))  # type: ignore[union-attr]
    assert HOSTILE not in held
    assert json.loads(re.findall(r'id="view">(.*?)</script>', held)[0])["runs"][0]["name"] == HOSTILE
    cell = shown._repr_html_()
    inside = cell.partition('srcdoc="')[2]
    assert inside.partition('"')[2] == "></iframe>"


def test_the_document_has_the_modules_of_the_page() -> None:
    """They are the page's own files, but for the names by which they import each other; nothing is left to fetch."""
    found = modules(ENTRY)
    assert {"charts/plot.js", "charts/marks.js", "vendor/uplot.js"} <= set(found)
    for name, text in found.items():
        own = (WEB / name).read_text(encoding="utf-8")
        assert text.count("\n") == own.count("\n")
        named = re.findall(r'from "([^"\n]+)";$', text, re.MULTILINE)
        assert {each.removeprefix("page/") for each in named} <= set(found), name
        assert len(named) == len(re.findall(r'from "\.[^"\n]+";$', own, re.MULTILINE)), name
    assert "http:" not in re.sub(r"http://www\.w3\.org/\S+", "", document({}))


def test_without_anywidget_it_says_how_to_get_the_live_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The charts are there all the same, and the text of a terminal."""
    run = record(tmp_path, "a")
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "stepscope.notebook.widget", raising=False)
    shown = stepscope.show(run, home=tmp_path)
    assert shown.widget is None  # type: ignore[union-attr]
    bundle = shown._repr_mimebundle_()  # type: ignore[union-attr]
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/plain"] == "a: finished, step 49"
    assert "pip install 'stepscope[notebook]'" in bundle["text/html"]


def test_only_so_many_views_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest stops when there are more, and so does one that is closed; a problem does not end a view."""
    widget = pytest.importorskip("stepscope.notebook.widget", reason="the live view is an anywidget")
    monkeypatch.setattr(widget, "SECONDS", 0.01)
    run = stepscope.init(home=tmp_path, probes=False, otel=False, quiet=True)
    run.log({"loss": 1.0}, step=0)
    assert run.flush(30)
    shown = [stepscope.show(run) for _ in range(widget.MAX_FOLLOWING + 1)]
    shown[0].widget.following.join(60)  # type: ignore[union-attr]
    assert [each.widget.following.is_alive() for each in shown] == [False] + [True] * widget.MAX_FOLLOWING  # type: ignore[union-attr]
    view = shown[-1]._view  # type: ignore[union-attr]
    monkeypatch.setattr(view._sources[0], "advance", lambda seconds: 1 / 0)
    wait_until(lambda: "ZeroDivisionError" in shown[-1].widget.view["note"])  # type: ignore[union-attr]
    assert view.last["runs"][0]["step"] == 0
    for each in shown[1:]:
        each.widget.close()  # type: ignore[union-attr]
        each.widget.following.join(60)  # type: ignore[union-attr]
        assert not each.widget.following.is_alive()  # type: ignore[union-attr]
    run.finish()


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    """No run, too many runs, and no such tab."""
    runs = [record(tmp_path, str(at), steps=1) for at in range(9)]
    for given, reason in ((runs, "1 to 8 runs, not 9"), ([], "1 to 8 runs, not 0"), ("nothing", "nothing")):
        with pytest.raises(StepscopeError, match=reason):
            stepscope.show(given, home=tmp_path)
    with pytest.raises(StepscopeError, match="no tab 'x'"):
        stepscope.show(runs[0], tab="x", home=tmp_path)
    page = stepscope.show(runs[0], tab="logs", home=tmp_path)
    assert "No hub runs here" in page._repr_html_()
