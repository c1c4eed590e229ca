"""What every view owes everyone: nothing wider than the window, and no serious finding of axe."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.hub.conftest import RunningHub
from tests.web.conftest import until

SIZES = pytest.mark.parametrize(("width", "theme"), [(1280, "dark"), (390, "light")])
"""Both widths and both themes: contrast is a matter of the theme, overflow one of the width."""
_SETTLED = """document.querySelector('main .page')?.innerText.length > 40
    && !document.querySelector('.pulse, .dash-wait')
    && document.querySelector('.vt-row, .trace-row, .trace-flame canvas, .log-line, .health-card, [data-drawn]'
        + ', .facts, .diff, .relations, .endpoint')"""


def look_over(page: Any, hub: RunningHub, views: Iterable[str]) -> None:
    """Go through views on one page, as a person does, and judge each."""
    for view in views:
        page.goto(f"{hub.url}/#/{view}")
        if view.startswith("sql"):  # the statement of an address waits for a person
            page.get_by_role("button", name="Run", exact=True).click()
        until(page, _SETTLED)
        assert_fits(page, view)
        assert serious_in(page) == [], view


def assert_fits(page: Any, view: str) -> None:
    """Nothing is wider than the window, or than its part, and nothing blank lies below."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} is wider than the window"
    below = page.evaluate("document.documentElement.scrollHeight - innerHeight")
    assert below <= 0, f"{view} scrolls {below} pixels into blank"
    main = "document.querySelector('main')"
    assert page.evaluate(f"{main}.scrollWidth <= {main}.clientWidth + 1"), f"{view} is wider than its part"


def look_in_both_themes(page: Any, what: str) -> None:
    """Judge what a page shows now, such as a dialog, in the light and in the dark theme."""
    for theme in ("dark", "light"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        assert serious_in(page) == [], f"{what}, {theme}"


COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe that look at colours, which differ from theme to theme."""


def serious_in(page: Any, rules: Sequence[str] = (), within: str = "") -> list[str]:
    """What axe calls serious or critical of what a page shows now, or of parts of it, by all its rules or by some."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe checks accessibility")
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:160]} {each['nodes'][0].get('failureSummary', '')[:200]}"
        for each in _violations(page, axe.Axe().axe_script, rules, within)
        if each["impact"] in ("serious", "critical")
    ]


_RUN = """([chosen, within]) => { const { rules, tagExclude } = axe._audit;
  const serious = rules.filter((each) => each.enabled && ['serious', 'critical'].includes(each.impact)
    && !each.tags.some((tag) => tagExclude.includes(tag))).map((each) => each.id);
  if (serious.length < 40 || !chosen.every((each) => serious.includes(each))) throw new Error('axe has other rules');
  const runOnly = { type: 'rule', values: chosen.length ? chosen : serious };
  return axe.run(within ? { include: [[within]] } : document, { runOnly, resultTypes: ['violations'] })
    .then((results) => results.violations); }"""
"""Runs the rules whose violations are serious. Nearly all of the time goes into the contrast of each piece of text."""


def _violations(page: Any, axe: str, rules: Sequence[str], within: str) -> Any:
    """What axe finds; its script stays in the document, and of what it has to say only this leaves the page."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    return page.evaluate(_RUN, [list(rules), within])
