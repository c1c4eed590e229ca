"""What opens on a view, found in the running page, can be used by everyone: menus, folded parts and drawers."""

import re
from typing import Any

from tests.hub.conftest import PACKAGE, RunningHub
from tests.web.conftest import Opened, until
from tests.web.looks import COLOURS, assert_fits, look_in_both_themes, serious_in
from tests.web.test_every_view import RUN, SPIKE, VIEWS

UNVISITED = {"share"}
"""Views that only a link with a token opens; `test_share` looks at it."""
DIALOGS = {
    "alerts/list.js", "dashboards/view.js", "log/view.js", "parts/overlays.js", "run/control.js", "run/edit.js",
    "run/samples.js", "runs/view.js", "step/drawer.js", "workspace/views.js",
}  # fmt: skip
"""Parts of the page that open a drawer or a question; a test of each looks at it in both themes."""
WEB = PACKAGE / "stepscope" / "hub" / "web"
MOST = 6
"""Openers of a kind that are tried on one view."""
_OPENERS = """(most) => { const kinds = new Map();
  for (const each of document.querySelectorAll('main button[aria-expanded=false]')) {
    const { left, top, width, height } = each.getBoundingClientRect();
    const above = document.elementFromPoint(left + width / 2, top + height / 2);
    if (!each.checkVisibility() || each.disabled || !each.contains(above)) continue; // out of sight, or covered
    const kind = each.className + ' ' + (each.getAttribute('aria-label') || each.textContent).trim().split(/[ \\n]/)[0];
    if (!kinds.has(kind)) kinds.set(kind, each); }
  const chosen = [...kinds.values()].slice(0, most);
  document.querySelectorAll('[data-opener]').forEach((each) => each.removeAttribute('data-opener'));
  chosen.forEach((each, at) => each.setAttribute('data-opener', at));
  return chosen.length; }"""


def test_every_view_of_the_page_is_visited(trained: RunningHub) -> None:
    """The list of views that tests go through has each view that the page's shell knows."""
    shell = trained.request("GET", "/web/app.js").body.decode()
    names = set(re.findall(r'\{ name: "(\w+)"', shell))
    assert len(names) > 10
    assert names - UNVISITED == {re.split(r"[/?]", address)[0] for address in VIEWS}


_NOTE = """() => { window.noted = new WeakSet(
  [...document.querySelectorAll('*')].filter((each) => each.checkVisibility())); }"""
_OPENED = """() => { document.querySelectorAll('[data-opened]').forEach((each) => each.removeAttribute('data-opened'));
  const fresh = [...document.querySelectorAll('body *')].filter((each) => each.checkVisibility() && !noted.has(each));
  for (const each of [...fresh, ...document.querySelectorAll('[aria-expanded=true]')])
    if (noted.has(each) || noted.has(each.parentElement)) each.setAttribute('data-opened', '');
  return fresh.length; }"""
"""Mark what can be seen and could not when `_NOTE` was called, and what opened it."""


def serious_in_both_themes(page: Any, *, opened: bool = False) -> list[str]:
    """What axe finds in the theme that is shown, and of the colours of the other one, which is shown then.

    With `opened`, in what can be seen since `_NOTE`, all the rest having been looked at before; in all if that is none.
    """

    def within() -> str:
        return "[data-opened]" if opened and page.evaluate(_OPENED) else ""

    found = serious_in(page, within=within())
    other = "light" if page.evaluate("document.documentElement.dataset.theme") == "dark" else "dark"
    page.emulate_media(color_scheme=other, reduced_motion="reduce")
    until(page, f"document.documentElement.dataset.theme === '{other}'")
    return found + serious_in(page, COLOURS, within())


def test_what_opens_can_be_used_by_everyone(trained: RunningHub, show: Opened) -> None:
    """A view is no wider than the window; axe finds nothing serious in it, in either theme, nor in what it opens."""
    page = show(trained)
    tried = 0
    for address, content in VIEWS.items():
        page.goto(f"{trained.url}/#/{address}")
        page.locator(content).first.wait_for()
        until(page, "!document.querySelector('.pulse, .dash-wait')")
        assert_fits(page, address)
        assert serious_in_both_themes(page) == [], address
        for at in range(page.evaluate(_OPENERS, MOST)):
            opener = page.locator(f'[data-opener="{at}"]')
            if not opener.count():  # what was opened before has replaced it
                continue
            name = opener.get_attribute("aria-label") or opener.inner_text()
            page.evaluate(_NOTE)
            opener.click()
            until(page, "document.querySelector('[aria-expanded=true]') !== null")
            assert serious_in_both_themes(page, opened=True) == [], f"{address}: {name}"
            page.keyboard.press("Escape")
            tried += 1
    assert tried >= len(VIEWS) / 2


def test_what_is_hard_to_read_is_found(trained: RunningHub, show: Opened) -> None:
    """Dark words on a dark page whichever theme is shown first, and what opens hard to read in any."""
    page = show(trained, "alerts", fresh=True)
    page.locator(VIEWS["alerts"]).first.wait_for()
    page.evaluate(_NOTE)
    page.evaluate(
        """() => { const words = document.createElement('p');
        words.innerHTML = 'Hard to read <button aria-expanded=true></button>';
        Object.assign(words.style, { color: '#777', background: '#888' });
        document.querySelector('main').append(words); }"""
    )
    found = serious_in_both_themes(page, opened=True)
    assert [each.split(":")[0] for each in found] == ["button-name", "color-contrast", "color-contrast"]
    page.evaluate("document.querySelector('main > p:last-child').remove()")
    assert serious_in_both_themes(page) == []
    page.evaluate("document.querySelector('h1').style.color = '#333'")
    for _ in range(2):
        assert [each.split(":")[0] for each in serious_in_both_themes(page)] == ["color-contrast"]


def test_every_dialog_is_known() -> None:
    """A new drawer or question is found, so that someone looks at it."""
    opening = {path for path in WEB.rglob("*.js") if re.search(r"<\$\{(Drawer|Confirm)\}", path.read_text())}
    assert {path.relative_to(WEB).as_posix() for path in opening} == DIALOGS


def test_the_question_before_runs_are_deleted(trained: RunningHub, show: Opened) -> None:
    """It can be used by everyone, in either theme, and Cancel deletes nothing."""
    page = show(trained, "runs")
    page.get_by_label("Select four-ranks").check()
    page.get_by_role("button", name="Manage").click()
    page.get_by_role("button", name="Delete 1 run…").click()
    look_in_both_themes(page, "the question before runs are deleted")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").wait_for(state="detached")
    assert trained.request("GET", f"/api/runs/{RUN}").status == 200


def test_the_step_inspector_in_both_themes(trained: RunningHub, show: Opened) -> None:
    """Its findings, values and spans can be read by everyone."""
    page = show(trained, f"run/{RUN}?step={SPIKE}")
    page.locator(".step .findings li.bad").first.wait_for()
    look_in_both_themes(page, "the step inspector")
