"""`stepscope report`: one file that needs nothing else, whatever is in the run."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")

from stepscope.cli.html import report_page
from stepscope.cli.html.svg import LEFT, Mark, chart, marks
from tests.forked import stepscope

PROGRAM = """
import logging, math, stepscope
run = stepscope.init(project="p", name="<script>alert(1)</script>", config={"lr": 0.1, "a<b": "\\"'><img src=x>"})
for i in range(300):
    with run.step(i):
        with run.span("forward"):
            pass
        loss = math.nan if i == 200 else 9.0 if i == 155 else 1.0 + (i % 5) / 10
        run.log({"loss": loss, "big": 1e308 if i % 2 else -1e308}, category="trainer")
logging.getLogger("x").warning("<b>bold & brash</b>")
run.alert("spike", "ERROR", "</pre><script>x</script>", step=155)
run.alert("disk full", "FATAL", "no room on <data>")
run.finish()
"""


class _Page(HTMLParser):
    """What a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] != tag and self.open[-1] in ("li", "td", "th", "tr"):
            self.open.pop()
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(home: Path, python: Any, tmp_path: Path) -> tuple[_Page, str]:
    """A report, parsed, and its text."""
    assert python(PROGRAM).returncode == 0
    target = tmp_path / "run.html"
    done = stepscope("report", "latest", "-o", target, "--home", home, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes"] == target.stat().st_size
    text = target.read_text(encoding="utf-8")
    parsed = _Page()
    parsed.feed(text)
    return parsed, text


def test_it_is_whole_and_needs_nothing_from_elsewhere(page: tuple[_Page, str]) -> None:
    """Findings, charts, configuration, logs; no scripts, no links, a policy that forbids both."""
    parsed, text = page
    assert parsed.open == []
    assert parsed.links == []
    assert not {"script", "img", "link", "iframe", "object"} & set(parsed.tags)
    assert "default-src 'none'" in text
    assert "http" not in re.sub(r"http-equiv", "", text)
    found = ("trainer/loss became NaN at step 200", "trainer/loss spiked to 9 at step 155")
    for word in (*found, "Expected 1 to 1.4. Likely cause: an overflow, a division", "300 points", "forward"):
        assert word in parsed.text
    assert parsed.tags.count("svg") >= 2
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_an_alert_is_among_what_went_wrong(page: tuple[_Page, str]) -> None:
    """The one about the spike is not shown beside it."""
    _, text = page
    assert "<li class=FATAL>alert disk full: no room on &lt;data&gt;<div class=soft>" in text
    assert "trainer/loss spiked to 9 at step 155" in text
    assert "alert spike" not in text


def test_what_a_run_says_is_text_and_nothing_else(page: tuple[_Page, str]) -> None:
    """Names, settings, logs and alerts that look like HTML are shown as they were written."""
    parsed, _ = page
    for word in ("<script>alert(1)</script>", "\"'><img src=x>", "<b>bold & brash</b>", "</pre><script>x</script>"):
        assert word in parsed.text


def test_a_spike_and_a_nan_are_in_the_drawing() -> None:
    """The band extends to the spike; a NaN is marked and leaves a gap in the line."""
    drawn = chart([Mark(0, 1, 1, 1), Mark(1, 1, 50, 2), Mark(2, None, None, None, 1), Mark(3, 1, 1, 1)], [1])
    assert re.search(r'<polygon class=band points="[^"]* 169.3,8.0 ', drawn) or ",8.0 " in drawn
    assert "NaN at step 2" in drawn
    assert "step 1</title>" in drawn
    assert drawn.count("<circle") == 1


def test_a_finding_without_a_step_flags_no_place_in_a_chart() -> None:
    """A finding about a whole metric has no step; the charts are drawn, with the flags of the others."""
    shape = {"shape": "raw", "columns": {"x": [0, 1], "value": [1.0, 2.0]}}
    line = {"key": "loss", "unit": "", "ranks": [0], "superseded": 0, "total": 2, "last": None, **shape}
    found = [{"key": "loss", "also": (), "step": step, "muted": ""} for step in (None, 1)]
    drawn = report_page._charts([line], found)
    assert drawn.count("<svg") == 1


def labels(*values: float) -> list[str]:
    """The labels of the value axis, from the top."""
    drawn = chart([Mark(step, value, value, value) for step, value in enumerate(values)])
    return re.findall(r'<text x="[^"]*" y="[^"]*" text-anchor="end">([^<]*)</text>', drawn)[:-1]


def test_labels_of_an_axis_fit_beside_it() -> None:
    """The sign of the lowest number there is can be seen, and zero has none."""
    assert labels(1.7e308, -1.7e308) == ["1.7e308", "-1.7e308"]
    assert labels(-0.0, -1.0) == ["0", "-1"]
    assert labels(-0.0, -0.0) == ["0"]
    assert labels(1.234e-5, 1e-5) == ["1.23e-5", "1e-5"]
    widest = 6.2  # of a digit in 10 px
    assert len(*labels(-1.234e-308)) * widest <= LEFT - 4


def test_extremes_are_drawn_apart() -> None:
    """However far or near numbers are, the lowest is at the bottom and the highest at the top."""
    for low, high in ((-1.7e308, 1.7e308), (0.0, 5e-324), (5e-324, 1e-323)):
        drawn = chart([Mark(0, low, low, low), Mark(1, high, high, high)])
        assert re.search(r'class=mean points="\S+,132.0 \S+,8.0"', drawn), drawn
    both = {"shape": "raw", "columns": {"x": [0, 0], "value": [1.7e308, 1.7e308]}}
    assert marks(both) == [Mark(0, 1.7e308, 1.7e308, 1.7e308, 0)]


def test_marks_of_raw_points_take_all_ranks_of_a_step_together() -> None:
    """Extremes and mean of the finite ones, flags of the others."""
    line = {"shape": "raw", "columns": {"x": [0, 0, 1, 1], "value": [1.0, 3.0, "NaN", "-Infinity"]}}
    assert marks(line) == [Mark(0, 1.0, 3.0, 2.0, 0), Mark(1, None, None, None, 5)]


def test_the_last_step_is_that_of_the_last_point() -> None:
    """The last step is not the start of the last bucket."""
    columns = {"x": [0, 2, 498], "x_last": [1, 3, 499], "min": [1.0, 1.0, 5.0], "max": [2.0, 2.0, 7.0],
               "mean": [1.5, 1.5, 6.0], "last": [2.0, 1.0, 7.0], "flags": [0, 0, 0]}  # fmt: skip
    line = {"shape": "buckets", "columns": columns}
    assert 'text-anchor="end">499</text>' in chart(marks(line))


def test_a_report_tells_the_last_value(page: tuple[_Page, str]) -> None:
    """The chart's title shows the loss of step 299."""
    _, text = page
    assert '<b>trainer/loss</b><span title="last value at step 299">1.4</span>' in text


SEVERAL = """
import stepscope
PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c63f8cfc0f01f00050001ff56c7290d0000000049454e44ae426082")
for number in range(3):
    run = stepscope.init(project="p", run_id=f"run-{number}", name=f"<b>{number}", config={"lr": number, "seed": 7},
        notes="first line\\n<i>second</i>", probes=False)
    for i in range(20 if number < 2 else 1):
        run.log({"trainer/loss": number + 1 / (i + 1)}, step=i)
        run.log({"val/seen": stepscope.Image(PNG if i % 2 else PNG + b"x")}, step=i)
    drawing = b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"
    run.log({"val/drawing": stepscope.File(drawing, name="a.svg")})
    run.finish()
"""


def test_several_runs_are_compared_in_one_file(home: Path, python: Any, tmp_path: Path) -> None:
    """A line of each run in each chart, the settings that differ, notes, and the latest images inside the file."""
    done = python(SEVERAL)
    assert done.returncode == 0, done.stderr
    target = tmp_path / "runs.html"
    done = stepscope("report", "run-0", "run-1", "run-2", "run-1", "-o", target, "--home", home, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"] == ["run-0", "run-1", "run-2"]
    text = target.read_text(encoding="utf-8")
    parsed = _Page()
    parsed.feed(text)
    assert parsed.open == []
    assert not {"script", "link", "iframe", "object", "b>"} & set(parsed.tags)
    assert parsed.tags.count("svg") == 1
    assert [parsed.tags.count(tag) for tag in ("polyline", "circle")] == [2, 1]
    assert re.findall(r'class="(?:line|point) (s\d)"', text) == ["s0", "s1", "s2"]
    assert parsed.tags.count("img") == len(parsed.links) == 3
    assert all(link.startswith("data:image/png;base64,iVBORw0KGgo") for link in parsed.links)
    assert "first line\n<i>second</i>" in parsed.text
    assert re.search(r"<td>lr</td><td>0</td><td>1</td><td>2</td>", text)
    assert "<td>seed</td>" not in text
    assert "41 points, 41 shown, 3 of 3 runs" in text
    refused = stepscope("report", *(f"r{n}" for n in range(51)), "-o", target, "--home", home)
    assert refused.returncode == 2
    assert "at most 50 runs" in refused.stderr
