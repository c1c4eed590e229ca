"""The page is served whole, by strict rules, and asks nobody but its hub."""

import gzip
import re
from urllib.parse import urlsplit

from stepscope.hub.serving.page import WEB
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, until
from tools.vendor import FOLDER, SUMS, sums


def test_document_and_files_are_served_with_a_strict_policy(trained: RunningHub) -> None:
    """Scripts come from the hub alone, none inline; browsers ask whether files changed."""
    for path in ("/", "/web/app.js", "/web/theme.css", "/web/vendor/uplot.js", "/web/vendor/inter.woff2"):
        answer = trained.request("GET", path)
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "default-src 'none'" in policy
        assert answer.headers["cache-control"] == "no-cache"
    for path in ("/web/../app.py", "/web/%2e%2e/app.py", "/web/README.md", "/web/none.js", "/web/", "/web/a%00.js"):
        assert trained.request("GET", path).status == 404, path


def test_files_are_packed_and_kept_until_they_change(trained: RunningHub) -> None:
    """A cached file gives 304, and a browser that accepts compression gets fewer bytes."""
    plain = trained.request("GET", "/web/vendor/uplot.js")
    packed = trained.request("GET", "/web/vendor/uplot.js", headers={"accept-encoding": "gzip, br"})
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2
    again = trained.request("GET", "/web/vendor/uplot.js", headers={"if-none-match": plain.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_files_of_the_version_that_the_document_names_are_kept_for_good(trained: RunningHub) -> None:
    """Each file of the document is named below its version; one of another version is asked for again."""
    text = trained.request("GET", "/").body.decode()
    named = re.findall(r'="(web/[^"]+)"', text)
    assert named
    versions = {name.split("/")[1] for name in named}
    assert len(versions) == 1
    for name in named:
        assert "immutable" in trained.request("GET", f"/{name}").headers["cache-control"], name
    other = trained.request("GET", "/web/@000000000000/app.js")
    assert (other.status, other.headers["cache-control"]) == (200, "no-cache")
    assert trained.request("GET", f"/web/{versions.pop()}/../../app.py").status == 404


def test_first_questions_are_asked_once(trained: RunningHub, show: Opened) -> None:
    """What early.js asks before the modules are there is not asked again by them."""
    page = show(trained, "run/four-ranks?tab=charts", fresh=True)
    until(page, "performance.getEntriesByName('stepscope:line').length > 0")
    asked = page.evaluate("performance.getEntriesByType('resource').map((each) => each.name)")
    paths = [urlsplit(each).path for each in asked]
    assert paths.count("/api/runs/four-ranks") == paths.count("/api/runs/four-ranks/keys") == 1


def test_document_has_no_inline_code() -> None:
    """No script and no style stands in the document, and nothing in it comes from elsewhere."""
    text = (WEB / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert "<style" not in text
    assert "//" not in re.sub(r"<!doctype html>", "", text)


def test_every_file_of_the_document_is_there() -> None:
    """Imports of modules and styles lead to files, so that no view breaks only when it is opened."""
    missing = []
    for path in [*WEB.rglob("*.js"), *WEB.rglob("*.css")]:
        if "vendor" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"""(?:from|import)\s*\(?\s*["'](\.[^"']+)["']|url\(["']([^"')]+)["']\)""", text)
        missing += [
            f"{path.name}: {one or other}" for one, other in found if not (path.parent / (one or other)).is_file()
        ]
    assert missing == []


def test_document_loads_all_shared_modules_at_once() -> None:
    """The shell, the parts and the charts are named in the document, so that no module waits for another to name it."""
    text = (WEB / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'rel="modulepreload" href="web/([^"]+)"', text))
    folders = (WEB, WEB / "vendor", WEB / "parts", WEB / "charts")
    there = {path.relative_to(WEB).as_posix() for folder in folders for path in folder.glob("*.js")}
    assert named == there - {"early.js"}


def test_vendored_files_are_what_was_fetched() -> None:
    """Nobody edits them by hand."""
    assert sums(FOLDER) == (FOLDER / SUMS).read_text(encoding="utf-8")


def test_the_present_view_is_in_sight_in_a_narrow_navigation(trained: RunningHub, show: Opened) -> None:
    """Whichever of the tabs it is, the one of the page lies within the bar."""
    page = show(trained, width=390, height=844)
    for view, name in {"runs": "Runs", "health": "Health", "sql": "SQL", "run/four-ranks": "Runs"}.items():
        page.goto(f"{trained.url}/#/{view}")
        page.locator("nav [aria-current]", has_text=name).wait_for()
        until(
            page,
            """(() => { const bar = document.querySelector('.top nav'), link = bar.querySelector('[aria-current]');
            const [outer, inner] = [bar.getBoundingClientRect(), link.getBoundingClientRect()];
            return inner.left >= outer.left - 1 && inner.right <= outer.right + 1; })()""",
        )


def test_both_margins_are_as_wide(trained: RunningHub, show: Opened) -> None:
    """Also where a scrollbar stands in one of them."""
    page = show(trained)
    for view in ("run/four-ranks?tab=overview", "run/four-ranks?tab=charts", "health"):
        page.goto(f"{trained.url}/#/{view}")
        page.locator(".panel").nth(2).wait_for()
        until(
            page,
            """(() => {
            const all = [...document.querySelectorAll('.page .panel')].map((each) => each.getBoundingClientRect());
            const [lefts, rights] = ["left", "right"].map((side) => all.map((each) => each[side]));
            return Math.min(...lefts) === 16 && innerWidth - Math.max(...rights) === 16; })()""",
        )


def test_figures_of_health_are_not_cut(trained: RunningHub, show: Opened) -> None:
    """Every word under a figure fits its tile at 1280 pixels."""
    page = show(trained, "health")
    page.locator(".health-text").first.wait_for()
    cut = "[...document.querySelectorAll('.health-text')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert page.evaluate(f"{cut}.map((each) => each.innerText)") == []


def test_unknown_view_and_unknown_run_say_so(trained: RunningHub, show: Opened) -> None:
    """Wrong addresses are answered in words."""
    page = show(trained, "nowhere")
    page.get_by_text("Page not found").wait_for()
    page.goto(f"{trained.url}/#/run/none")
    page.get_by_text("There is no run none").wait_for()
    show.forgive("404")


def test_theme_can_be_chosen(trained: RunningHub, show: Opened) -> None:
    """The button goes from the system's theme to light to dark, and the choice is kept."""
    page = show(trained, "runs", theme="dark", fresh=True)
    root = "document.documentElement.dataset.theme"
    assert page.evaluate(root) == "dark"
    page.get_by_label("Theme: auto").click()
    assert page.evaluate(root) == "light"
    page.reload()
    page.get_by_label("Theme: light").wait_for()
    assert page.evaluate(root) == "light"
