"""Traces in the browser: search, waterfall, flame, the chosen span, large traces, files in and out."""

import json
import re
from pathlib import Path
from typing import Any

from tests.web.conftest import until
from tests.web.views.conftest import World
from tests.web.views.recorded import FAILED, RUN, STEPS, big_trace, trace_of

TRACE = trace_of(FAILED).hex()


def test_search_by_what_spans_carry(world: World, show: Any) -> None:
    """Name, duration, status, step and any attribute narrow the search, and the address holds them."""
    page = show(world.hub, f"traces?run={RUN}")
    rows = page.locator(".vt-row")
    rows.first.wait_for()
    page.get_by_label("Status").select_option("error")
    until(page, "document.querySelectorAll('.vt-row').length === 1")
    assert "forward_backward" in rows.inner_text()
    page.get_by_label("Status").select_option("")
    adder = page.get_by_label("Attribute")
    adder.fill("tuft.operation_type=forward_backward")
    adder.press("Enter")
    until(page, "[...document.querySelectorAll('.vt-row')].every((row) => row.innerText.includes('rl.train'))")
    page.get_by_label("Step").first.fill(str(FAILED))
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.vt-row').length === 2")
    assert "attr=tuft.operation_type" in page.url
    assert f"step={FAILED}" in page.url
    page.get_by_label("At least").fill("500")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.vt-row').length === 1")


def test_names_lead_to_spans(world: World, show: Any) -> None:
    """The list of names counts, and choosing one searches for it."""
    page = show(world.hub, f"traces?run={RUN}")
    page.locator(".trace-names button", has_text="env.reset").click()
    until(page, "[...document.querySelectorAll('.vt-row')].every((row) => row.innerText.includes('env.reset'))")
    assert f"{2 * STEPS}" in page.locator(".trace-names button.on").inner_text()


def test_an_empty_result_is_stated(world: World, show: Any) -> None:
    """An empty answer says so and leads back."""
    page = show(world.hub, f"traces?run={RUN}&name=no.such.span")
    page.get_by_text("No spans match").wait_for()
    page.get_by_role("button", name="Search all spans").click()
    page.locator(".vt-row").first.wait_for()


def test_waterfall_of_a_step(world: World, show: Any) -> None:
    """All ranks of a trace are there, the failed span is marked, and its attributes, error and logs are shown."""
    page = show(world.hub, f"traces?trace={TRACE}&view=waterfall")
    rows = page.locator(".trace-row")
    rows.first.wait_for()
    assert rows.count() == 18
    failed = page.locator(".trace-row.failed")
    assert failed.count() == 1
    failed.click()
    details = page.locator(".trace-details")
    details.get_by_text("CUDA out of memory", exact=False).first.wait_for()
    text = details.inner_text()
    assert "batch_size" in text
    assert "tried to allocate 2.00 GiB" in text
    assert details.get_by_role("link", name=str(FAILED)).get_attribute("href") == f"#/run/{RUN}?step={FAILED}&at=1"
    assert "span=" in page.url


def test_keyboard_walks_the_tree(world: World, show: Any) -> None:
    """Arrow keys choose, fold and unfold; e goes to the failed span."""
    page = show(world.hub, f"traces?trace={TRACE}&view=waterfall")
    page.locator(".trace-row").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    until(page, "document.querySelector('.trace-row.on')?.innerText.includes('rl.sample')")
    page.keyboard.press("ArrowLeft")
    until(page, "document.querySelectorAll('.trace-row').length === 16")
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelectorAll('.trace-row').length === 18")
    page.keyboard.press("e")
    until(page, "document.querySelector('.trace-row.on')?.classList.contains('failed')")


def test_critical_path(world: World, show: Any) -> None:
    """What nothing waited for is faded when the critical path is asked for."""
    page = show(world.hub, f"traces?trace={TRACE}&view=waterfall")
    page.locator(".trace-row").first.wait_for()
    assert page.locator(".trace-bar.faded").count() == 0
    page.get_by_role("button", name="Critical path").click()
    until(page, "document.querySelectorAll('.trace-bar.faded').length === 2")
    row = page.locator(".trace-row", has=page.locator(".trace-bar.faded")).first
    assert "data.prefetch" in row.inner_text()
    page.goto(f"{world.hub.url}/#/traces?trace={TRACE}&view=names")
    page.locator(".vt-row").first.wait_for()
    first = page.locator(".vt-row").first.inner_text()
    assert "forward_backward" in first


def test_a_step_on_all_ranks(world: World, show: Any) -> None:
    """A run and a step show every rank as a lane of the flame view."""
    page = show(world.hub, f"traces?run={RUN}&at=5")
    page.locator(".trace-flame canvas").wait_for()
    assert "2 lanes" in page.locator(".trace-sum").inner_text()


def test_a_hundred_thousand_spans_stay_usable(world: World, show: Any) -> None:
    """A large trace opens, zooms, finds the span under the pointer, folds and scrolls with a bounded page."""
    page = show(world.hub, f"traces?trace={world.big}")
    canvas = page.locator(".trace-flame canvas")
    canvas.wait_for()
    assert "100,000 spans" in page.locator(".trace-sum").inner_text()
    assert page.evaluate("document.querySelectorAll('*').length") < 600
    box = canvas.bounding_box()
    assert drawn(page, box["width"] - 40) > 200
    page.keyboard.down("Control")
    for _ in range(14):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
        page.mouse.wheel(0, -240)
    page.keyboard.up("Control")
    until(page, "location.hash.includes('from=')")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 52)
    page.locator(".trace-details h2").wait_for()
    assert page.locator(".trace-details h2").inner_text().startswith("ProfilerStep#")
    page.locator("label", has_text="Waterfall").click()
    page.locator(".trace-row.on").wait_for()
    assert page.locator(".trace-row").count() < 120
    page.locator(".trace-fall .trace-scroll").evaluate("(body) => { body.scrollTop = body.scrollHeight / 2; }")
    until(page, "document.querySelectorAll('.trace-row').length > 10")
    assert page.locator(".trace-row").count() < 120


def drawn(page: Any, width: float) -> int:
    """How many pixels of the flame view differ from its ground."""
    count: int = page.evaluate(
        """(width) => { const canvas = document.querySelector('.trace-flame canvas');
        const data = canvas.getContext('2d').getImageData(0, 50, width, 60).data;
        let count = 0; for (let i = 3; i < data.length; i += 4) if (data[i]) count++; return count; }""",
        width,
    )
    return count


def test_files_go_out_and_come_in(world: World, show: Any, tmp_path: Path) -> None:
    """A trace exported in either format holds its spans, and a file that is chosen is imported and opened."""
    page = show(world.hub, f"traces?trace={TRACE}&view=waterfall")
    page.locator(".trace-row").first.wait_for()
    for name, field in (("OTLP JSON", "resourceSpans"), ("Chrome / Perfetto JSON", "traceEvents")):
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as saved:
            page.get_by_role("link", name=name).click()
        found = json.loads(Path(saved.value.path()).read_text())
        assert found[field]
    file = tmp_path / "mine.json"
    file.write_bytes(big_trace(800, 1))
    page.goto(f"{world.hub.url}/#/traces")
    page.locator("input[type=file]").set_input_files(str(file))
    page.wait_for_url(re.compile("trace="))
    page.locator(".trace-sum").wait_for()
    assert "800 spans" in page.locator(".trace-sum").inner_text()
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    page.goto(f"{world.hub.url}/#/traces")
    page.locator("input[type=file]").set_input_files(str(bad))
    page.get_by_role("alert").wait_for()
    assert "resourceSpans" in page.get_by_role("alert").inner_text()
    assert [said for said in show.complaints if "400" not in said] == []
    show.complaints.clear()


def test_what_was_exported_is_known(world: World, show: Any, tmp_path: Path) -> None:
    """A file of ours that comes back adds nothing, and opens the steps it has."""
    page = show(world.hub, f"traces?run={RUN}&at={FAILED}&last={FAILED + 1}&view=waterfall")
    page.locator(".trace-row").first.wait_for()
    rows = page.locator(".trace-row").count()
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as saved:
        page.get_by_role("link", name="OTLP JSON").click()
    file = tmp_path / "ours.json"
    saved.value.save_as(file)
    page.goto(f"{world.hub.url}/#/traces")
    page.locator("input[type=file]").set_input_files(str(file))
    page.wait_for_url(re.compile(f"run={RUN}&at={FAILED}&last={FAILED + 1}"))
    page.goto(page.url + "&view=waterfall")
    page.locator(".trace-row").first.wait_for()
    assert page.locator(".trace-row").count() == rows
