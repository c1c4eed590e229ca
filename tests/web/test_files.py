"""The files of a run on the page: media by step, tables, texts, downloads, and distributions among the charts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import stepscope
from stepscope.cli.main import main
from stepscope.sdk import checkpoints
from tests.hub.conftest import JSON, RunningHub
from tests.hub.questions.test_files import png
from tests.late import late
from tests.waiting import wait_until
from tests.web.conftest import Opened, until
from tests.web.looks import SIZES, look_over

tensorboardX = late("tensorboardX")
STEPS = 3
OWNED = "document.documentElement.setAttribute('owned', '1')"
FILES = {
    **{f"media/images/sample_{step}.png": png() for step in range(STEPS)},
    "media/table/rows.table.json": json.dumps(
        {"columns": ["n", "text"], "data": [[n, f"<b>{n}</b>"] for n in range(30)]}
    ).encode(),
    "evil.svg": f'<svg xmlns="http://www.w3.org/2000/svg"><script>{OWNED}</script><rect width="9"/></svg>'.encode(),
    "evil.png": f"<html><script>{OWNED}</script></html>".encode(),
    "notes.txt": b"plain words",
}


def _line(step: int) -> str:
    values: dict[str, Any] = {"loss": 1 / (step + 1), "_step": step, "_timestamp": 1.79e9 + step, "note": f"at {step}"}
    values["sample"] = {"_type": "image-file", "path": f"media/images/sample_{step}.png", "caption": f"cat {step}"}
    values["weights"] = {"_type": "histogram", "bins": [-1, 0, 1, 2], "values": [1, 5 + step, 2]}
    if step == STEPS - 1:
        values["rows"] = {"_type": "table-file", "path": "media/table/rows.table.json", "ncols": 2, "nrows": 30}
    return json.dumps(values)


def log_media(home: Path) -> None:
    """A run of our own SDK with media of every kind."""
    run = stepscope.init(project="vision", run_id="ours", home=home, probes=False, otel=False)
    for step in range(STEPS):
        shade: Any = numpy.full((60, 90, 3), 80 * step, numpy.uint8)
        shade[:, : 30 * (step + 1), 0] = 255
        run.log({"val/image": stepscope.Image(shade, caption=f"shade {step}"), "loss": 1 / (step + 1)}, step=step)
        run.log({"weights": stepscope.Histogram(numpy.array([0.0, 1.0, 2.0 + 3 * step]))}, step=step)
    script = f"<script>{OWNED}</script>"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60">{script}<rect width="90" height="60"/></svg>'
    run.log(
        {
            "grid": [stepscope.Image(numpy.full((40, 40), 60 * n, numpy.uint8), caption=f"{n}") for n in range(4)],
            "tone": stepscope.Audio(numpy.sin(numpy.arange(8000) / 5), 8000, caption="a tone"),
            "clip": stepscope.Video(numpy.random.default_rng(1).integers(0, 256, (4, 40, 60, 3), numpy.uint8)),
            "page": stepscope.Html("<h1>a page</h1>"),
            "drawing": stepscope.Image(svg.encode()),
            "bomb": stepscope.Image(png(60_000, 60_000)),
            "named": stepscope.File(b"x", name='../../"><img src=x onerror=1>\r\nSet-Cookie: a.html'),
            "notes": stepscope.File(b"a,b\n1,2\n", name="notes.csv"),
            "roc": stepscope.Curve(
                [0, 0.2, 1], {"a": [0, 0.8, 1], "b <b>": [0, float("nan"), 1]}, "of two", x_name="false", y_name="true"
            ),
            "bars": stepscope.Curve(["cat", "dog"], [3, 4], style="bars"),
            "cloud": stepscope.Curve(numpy.arange(50) % 7, numpy.arange(50) % 5, style="points"),
            "classes": stepscope.Confusion([[8, 2], [1, 9]], names=["cat", "<i>dog"]),
            "marked": stepscope.Image(
                numpy.full((60, 90, 3), 200, numpy.uint8),
                boxes={"guess": [{"box": (10, 10, 50, 40), "label": 1, "score": 0.87}]},
                masks={"truth": numpy.repeat([[0] * 45 + [2] * 45], 60, axis=0)},
                labels={1: "cat", 2: "road"},
            ),
        },
        step=STEPS,
    )
    assert run.finish(timeout=300)
    with stepscope.init(project="vision", run_id="hostile", home=home, probes=False, otel=False) as run:
        run.log({"page": stepscope.Html(f"<h1>a page</h1>{script}")}, step=1)


def log_artifacts(home: Path) -> None:
    """A run that made an artifact, and one that used it."""
    model = home.parent / "model.pt"
    model.write_text("<b>weights</b>")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "COPY_SECONDS", 60.0)
        run = stepscope.init(project="vision", run_id="maker", home=home, probes=False, otel=False)
        run.artifact(model, "model", "model", copy=True, step=3, aliases=["best"])
        run.finish(timeout=300)
    with stepscope.init(project="vision", run_id="user", home=home, probes=False, otel=False) as run:
        run.use("model:best")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with a run that a W&B client logged, and one that was imported from TensorBoard."""
    folder = tmp_path_factory.mktemp("files")
    with tensorboardX.SummaryWriter(str(folder / "imported")) as writer:
        for step in range(STEPS):
            writer.add_histogram("weights", numpy.array([0.0, 1.0, 2.0 + 3 * step]), step)
    assert main(["import", str(folder / "imported"), "--home", str(folder / "home")]) == 0
    log_media(folder / "home")
    log_artifacts(folder / "home")
    made = RunningHub(folder / "home").start()
    lines = {"wandb-history.jsonl": {"offset": 0, "content": [_line(step) for step in range(STEPS)]}}
    body = json.dumps({"files": lines, "complete": True, "exitcode": 0}).encode()
    assert made.post("/files/team/vision/media/file_stream", body, JSON).status == 200
    for name, data in FILES.items():
        assert made.request("PUT", f"/files/team/vision/media/{name}", data).status == 200
    wait_until(lambda: made.request("GET", "/api/runs/media").status == 200)
    wait_until(lambda: len(made.request("GET", "/api/runs/ours/media").json().get("media", ())) == STEPS + 13)
    yield made
    made.kill()


def test_images_follow_the_step(hub: RunningHub, show: Opened) -> None:
    """The last image is shown first, with its caption; the slider shows those of other steps, texts alike."""
    page = show(hub, "run/media?tab=files")
    card = page.locator("[data-media=sample]")
    card.get_by_text("cat 2").wait_for()
    until(page, "document.querySelector('[data-media=sample] img')?.naturalWidth > 0")
    card.get_by_label("Earlier sample").click()
    card.get_by_text("cat 1").wait_for()
    card.get_by_label("Step of sample").press("Home")
    card.get_by_text("step 0").wait_for()
    assert "sample_0.png" in card.locator("img").get_attribute("src")
    assert page.locator("[data-media=note] pre").inner_text() == "at 2"


def test_our_own_media_follow_the_step(hub: RunningHub, show: Opened) -> None:
    """Images by step with their captions, several under one key, a sound, a moving image, and histograms as such."""
    page = show(hub, "run/ours?tab=files")
    card = page.locator("[data-media='val/image']")
    card.get_by_text("shade 2").wait_for()
    until(page, "document.querySelector(\"[data-media='val/image'] img\")?.naturalWidth === 90")
    card.get_by_label("Step of val/image").press("Home")
    card.get_by_text("shade 0").wait_for()
    assert page.locator("[data-media=grid] img").count() == 4
    until(page, "document.querySelector('[data-media=clip] img')?.naturalWidth === 60")
    assert page.locator("[data-media=tone] audio").count() == 1
    page.get_by_role("button", name="media/notes.csv").click()
    page.locator(".file-preview td", has_text="2").wait_for()
    with page.expect_download() as saved:
        page.locator(".file-preview").get_by_text("Download").click()
    assert saved.value.suggested_filename == "notes.csv"
    page.goto(f"{hub.url}/#/run/ours?q=weights")
    page.locator(".distribution .heat[data-drawn='3']").wait_for()


def test_charts_are_drawn(hub: RunningHub, show: Opened) -> None:
    """Lines with their names and gaps, bars, points, and a confusion matrix; names are text."""
    page = show(hub, "run/ours?tab=files")
    card = page.locator("[data-media=roc]")
    card.get_by_text("of two").wait_for()
    paths = card.locator("svg path")
    assert [paths.nth(at).get_attribute("d").count("M") for at in range(2)] == [1, 2]
    assert card.locator("svg circle").count() == 2  # points between gaps
    assert card.locator(".chart-lines li").all_inner_texts() == ["a", "b <b>"]
    assert page.locator("[data-media=bars] svg rect").count() == 2
    assert page.locator("[data-media=cloud] svg circle").count() == 50
    matrix = page.locator("[data-media=classes] table")
    matrix.wait_for()
    assert matrix.locator("thead th").all_inner_texts()[1:] == ["cat", "<i>dog"]
    assert matrix.locator("td").all_inner_texts() == ["8", "2", "1", "9"]
    assert "20.0 %" in matrix.locator("td").nth(1).get_attribute("title")


def test_boxes_and_masks_are_drawn_over_the_image(hub: RunningHub, show: Opened) -> None:
    """A box with its label and score, a mask with its classes; each can be hidden."""
    page = show(hub, "run/ours?tab=files")
    card = page.locator("[data-media=marked]")
    card.locator("svg text", has_text="cat 0.87").wait_for()
    box = card.locator("svg rect")
    assert [box.get_attribute(name) for name in ("x", "y", "width", "height")] == ["10", "10", "40", "30"]
    card.get_by_text("road").wait_for()
    clear = "document.querySelector('[data-media=marked] canvas').getContext('2d').getImageData({}, 5, 1, 1).data[3]"
    assert (page.evaluate(clear.format(5)), page.evaluate(clear.format(80))) == (0, 130)
    card.get_by_label("guess boxes").uncheck()
    until(page, "!document.querySelector('[data-media=marked] svg')")
    assert card.locator("canvas").count() == 1


def test_artifacts_lead_from_run_to_run(hub: RunningHub, show: Opened) -> None:
    """The overview has what a run made and used, and links to the other end and to copied files."""
    wait_until(lambda: bool(hub.request("GET", "/api/runs/user/artifacts").json().get("used")))
    page = show(hub, "run/user?tab=overview")
    panel = page.get_by_role("region", name="Table of artifacts")
    panel.get_by_text("model:v0").wait_for()
    panel.get_by_role("link", name="maker").click()
    until(page, "location.hash.startsWith('#/run/maker')")
    page.goto(f"{hub.url}/#/run/maker?tab=overview")
    panel.get_by_role("link", name="user").wait_for()
    assert "best" in panel.inner_text()
    panel.get_by_role("link", name="model:v0").click()
    page.get_by_role("button", name="model:v0 / model.pt").click()
    page.locator(".file-preview pre", has_text="<b>weights</b>").wait_for()


def test_no_logged_script_runs(hub: RunningHub, show: Opened) -> None:
    """Neither of an SVG nor of a name; an image of 3,600 megapixels is not shown."""
    page = show(hub, "run/ours?tab=files")
    until(page, "document.querySelector('[data-media=drawing] img')?.naturalWidth === 90")
    page.locator("[data-media=bomb]").get_by_text("This image cannot be shown.").wait_for()  # it is not unpacked
    page.locator("[data-media=named]", has_text="onerror=1").wait_for()
    assert page.locator("[data-media=named] img").count() == 0
    assert page.evaluate("document.documentElement.getAttribute('owned')") is None


def test_tables_texts_and_downloads(hub: RunningHub, show: Opened) -> None:
    """A table has pages and its cells are text; a file of the list is shown and can be saved under its name."""
    page = show(hub, "run/media?tab=files")
    table = page.locator("[data-media=rows]")
    table.get_by_text("rows 1 to 25 of 30").wait_for()
    assert table.locator("td").nth(1).inner_text() == "<b>0</b>"
    table.get_by_label("Later rows").click()
    table.get_by_text("rows 26 to 30 of 30").wait_for()
    page.get_by_role("button", name="notes.txt").click()
    page.locator(".file-preview pre", has_text="plain words").wait_for()
    assert "file=notes.txt" in page.url
    with page.expect_download() as saved:
        page.locator(".file-preview").get_by_text("Download").click()
    assert saved.value.suggested_filename == "notes.txt"


def test_no_uploaded_script_runs(hub: RunningHub, show: Opened) -> None:
    """A script in an SVG runs neither in the page nor when the image is opened, and HTML is never a page."""
    page = show(hub, "run/media?tab=files&file=evil.svg")
    until(page, "document.querySelector('.file-preview img')?.complete")
    assert page.evaluate("document.documentElement.getAttribute('owned')") is None
    with page.expect_console_message(lambda said: "Blocked script execution" in said.text):
        page.goto(f"{hub.url}/api/runs/media/files/content?name=evil.svg")
    page.goto(f"{hub.url}/#/run/media?tab=files&file=evil.png")
    show.complaints.remove(next(each for each in show.complaints if "Blocked script execution" in each))
    page.locator(".file-preview pre", has_text="<script>").wait_for()
    assert page.locator(".file-preview img").count() == 0


def test_logged_html_is_shown_and_runs_nothing(hub: RunningHub, show: Opened) -> None:
    """It is a document of its own, in a frame, with its own styles; its script does not run, there or opened alone."""
    page = show(hub, "runs")
    with page.expect_console_message(lambda said: "Blocked script execution" in said.text):
        page.goto(f"{hub.url}/#/run/hostile?tab=files")
        page.frame_locator(".media-page").get_by_role("heading", name="a page").wait_for()
    with page.expect_console_message(lambda said: "Blocked script execution" in said.text):
        page.goto(f"{hub.url}/{page.locator('.media-page').get_attribute('src')}")
    page.get_by_role("heading", name="a page").wait_for()
    assert page.evaluate("document.documentElement.getAttribute('owned')") is None
    page.goto(f"{hub.url}/#/run/ours?tab=files")
    show.forgive("Blocked script execution")


def test_a_distribution_without_a_sum_is_drawn(hub: RunningHub, show: Opened) -> None:
    """Histograms of W&B are columns over steps; the cursor reads one, and Enter opens its step."""
    page = show(hub, "run/media?q=weights")
    page.locator(".distribution .heat[data-drawn='3']").wait_for()
    painted = "(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((each) => each > 0))"
    until(page, f"{painted}(document.querySelector('.distribution canvas'))")
    plot = page.locator(".distribution .chart-plot")
    plot.press("ArrowLeft")
    page.locator(".distribution output", has_text="10 values").wait_for()
    plot.press("Enter")
    until(page, "location.hash.includes('step=2')")


def test_a_distribution_with_a_sum_has_its_mean(hub: RunningHub, show: Opened) -> None:
    """Histograms of TensorBoard have one: it is read beside the median."""
    run = next(path.name for path in (hub.home / "runs").iterdir() if path.name.startswith("imported"))
    page = show(hub, f"run/{run}?q=weights")
    page.locator(".distribution .heat[data-drawn='3']").wait_for()
    page.locator(".distribution .chart-plot").press("End")
    page.locator(".distribution output", has_text="mean 3 ").wait_for()


@SIZES
def test_files_look_right(hub: RunningHub, show: Opened, width: int, theme: str) -> None:
    """The tab and a distribution fit into the window, and axe finds nothing serious."""
    page = show(hub, "run/media?tab=files", width=width, theme=theme)
    page.locator("[data-media=sample] img").wait_for()
    look_over(page, hub, ["run/media?tab=files&file=notes.txt", "run/media?q=weights", "run/ours?tab=files"])


@pytest.mark.parametrize("width", [1440, 390])
def test_a_long_list_of_files_ends_where_it_ends(hub: RunningHub, show: Opened, width: int) -> None:
    """Neither the document nor the view can be scrolled beyond the list."""
    for n in range(60):
        assert hub.request("PUT", f"/files/team/vision/media/weights/layer_{n:03d}.bin", b"0").status == 200
    page = show(hub, "run/media?tab=files", width=width)
    until(page, "document.querySelectorAll('.file-list tbody tr').length > 60")
    until(page, "document.querySelector('[data-media=sample] img')?.naturalWidth > 0")
    blank = page.evaluate(
        """(() => { const main = document.querySelector("main"), root = document.documentElement;
            main.scrollTop = main.scrollHeight; root.scrollTop = root.scrollHeight;
            const end = document.querySelector(".files").getBoundingClientRect().bottom;
            return [root.scrollHeight - innerHeight, main.getBoundingClientRect().bottom - end]; })()"""
    )
    assert blank[0] <= 0, blank
    assert blank[1] <= 60, blank
