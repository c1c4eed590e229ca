"""A link that shows one run: it signs in by itself, shows its run, and nothing else of the hub."""

import re
from pathlib import Path
from typing import Any

from stepscope.hub.home import tokens_path
from stepscope.hub.security.tokens import Tokens
from stepscope.model.names import EVENT_FINISHED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from tests.hub.conftest import RunningHub
from tests.waiting import wait_until
from tests.web.conftest import NO_VIEW, Opened, turn_to, until
from tests.web.looks import look_in_both_themes
from tests.web.stored import hub_with

START = 1_790_000_000 * 10**9


def _run(id: str) -> Batch:
    writer = Writer(id="w", run=id, project="shared", name=f"name of {id}", wall_ns=START, host="a", world_size=1)
    records: list[Record] = [Metric(START + n * 10**9, n, None, "trainer", {"loss": 1 / (n + 1)}) for n in range(9)]
    records.append(Event(START + 10**10, None, None, None, None, 9, EVENT_FINISHED, {"status": "finished"}))
    return Batch(writer, 1, records)


CHANGES = {"Rename", "tag", "Add notes", "Edit notes", "Manage", "Share…", "Stop…", "Expected", "Remove the tag seed"}
"""Buttons of a run that need more than reading."""


def offered(page: Any) -> set[str]:
    """The names of the buttons on a page."""
    names = page.get_by_role("button").evaluate_all("(all) => all.map((each) => each.ariaLabel || each.innerText)")
    return {name.strip() for name in names}


def _sign_in(page: Any, hub: RunningHub, token: str) -> None:
    page.goto(f"{hub.url}/#/runs")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.locator(".vt-row").first.wait_for()


def test_the_dialog_of_a_hub_without_tokens_shows_all_of_its_text(tmp_path: Path, show: Opened) -> None:
    """A long address is scrolled within its box, under no button, at the widths of a desk and of a phone."""
    with hub_with(tmp_path / "home", [_run("a-run-with-an-id-of-some-length-" + "0" * 40)]) as hub:
        page = show(hub, "run/a-run-with-an-id-of-some-length-" + "0" * 40)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 800})
            page.get_by_role("button", name="Share…").click()
            dialog = page.get_by_role("dialog", name=re.compile("^Share "))
            assert "made by stepscope hub token create" in " ".join(dialog.inner_text().split())
            assert dialog.evaluate("(each) => each.scrollWidth <= each.clientWidth"), width
            dialog.get_by_role("button", name="Close").click()
            dialog.wait_for(state="detached")
        show.close()


def test_a_link_is_made_opened_and_revoked_on_the_page(tmp_path: Path, show: Opened) -> None:
    """The head of a run and of a project make links, list them and revoke them; each opens what it is of."""
    home = tmp_path / "home"
    with hub_with(home, [_run("mine"), _run("other")]) as hub:
        tokens = Tokens(tokens_path(home))
        _, admin = tokens.create(["admin"], name="ann")
        wait_until(lambda: hub.request("GET", "/api/runs/mine").status == 401)
        page = show(hub, "runs", fresh=True)
        _sign_in(page, hub, admin)
        links = {}
        for place in ("run/mine?tab=overview", "project/shared?tab=config"):
            turn_to(page, place)
            page.get_by_role("button", name="Share…").click()
            dialog = page.get_by_role("dialog", name=re.compile("^Share "))
            dialog.get_by_label("It ends after").select_option("1d")
            dialog.get_by_role("button", name="Make a link").click()
            links[place] = dialog.locator("pre").inner_text()
            dialog.get_by_role("cell", name=re.compile("^link to .*, by ann$")).wait_for()
            look_in_both_themes(page, "the dialog that shares")
            page.keyboard.press("Escape")
            dialog.wait_for(state="detached")
            assert page.evaluate("document.activeElement.innerText") == "Share…"
        (of_run, of_project) = links.values()
        assert re.fullmatch(rf"{hub.url}/#/share/sst_\w+/mine\?tab=overview", of_run)
        assert re.fullmatch(rf"{hub.url}/#/share/sst_\w+\?project=shared&tab=config", of_project)
        visitor = show(hub, of_project.split("#/")[1], fresh=True)
        until(visitor, "location.hash === '#/project/shared?tab=config'")
        visitor.get_by_role("heading", name="Projects / shared").wait_for()
        assert visitor.locator("header.top nav").inner_text().split() == [
            *("Projects", "Runs", "Alerts", "Dashboards", "Health", "API"),
        ]
        other = show(hub, of_run.split("#/")[1], fresh=True)
        until(other, "location.hash === '#/run/mine?tab=overview'")
        other.get_by_role("heading", name="name of mine").wait_for()
        turn_to(page, "run/mine?tab=overview")
        page.get_by_role("button", name="Share…").click()
        page.get_by_role("button", name=re.compile("^Revoke the link")).click()
        page.get_by_text("Link revoked.").wait_for()
        wait_until(lambda: len(tokens.all()) == 2)
        ended = show(hub, of_run.split("#/")[1], fresh=True)
        ended.get_by_text("This link shows nothing any more").wait_for()
        show.forgive("40")


def test_a_hub_without_tokens_shares_its_address(tmp_path: Path, show: Opened) -> None:
    """There a link keeps nobody out; the dialog says so, has the address of the view, and asks the hub for nothing."""
    with hub_with(tmp_path / "home", [_run("mine")]) as hub:
        page = show(hub, "run/mine?tab=overview", width=390)
        page.get_by_role("button", name="Share…").click()
        dialog = page.get_by_role("dialog", name="Share name of mine")
        assert dialog.locator("pre").inner_text() == f"{hub.url}/#/run/mine?tab=overview"
        dialog.get_by_text("This address works on this machine only").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        dialog.get_by_role("button", name="Close").click()
        dialog.wait_for(state="detached")
        show.close()


def test_who_may_read_only_is_offered_nothing_else(tmp_path: Path, show: Opened) -> None:
    """With a token that reads, no view has a control that the hub would refuse, and no request of a view is refused."""
    home = tmp_path / "home"
    with hub_with(home, [_run("mine"), _run("other")]) as hub:
        tokens = Tokens(tokens_path(home))
        tokens.create(["admin"])
        wait_until(lambda: hub.request("GET", "/api/runs/mine").status == 401)
        for limit in (None, "shared"):
            _, text = tokens.create(["read"], project=limit)
            bearer = {"authorization": f"Bearer {text}"}
            wait_until(lambda bearer=bearer: hub.request("GET", "/api/runs/mine", None, bearer).status == 200)
            page = show(hub, NO_VIEW, fresh=True)
            page.evaluate("(token) => fetch('api/session', {method: 'POST', body: JSON.stringify({token})})", text)
            for view, there in (
                ("run/mine?tab=charts", "Share…"),
                ("run/mine?tab=diagnosis", "Share…"),
                ("run/mine?tab=overview", "Share…"),
                ("project/shared", "Views"),
                ("project/shared?tab=notes", "Views"),
                ("dashboards", "Empty charts"),
                ("alerts?tab=rules", ""),
                ("alerts?tab=silences", ""),
                *(() if limit else (("traces", ""), ("logs", ""))),
            ):
                turn_to(page, view)
                if there:
                    page.get_by_role("button", name=there, exact=True).first.wait_for()
                until(page, "!document.querySelector('.pulse')")
                more = {"Edit", "Customize", "Save", "Test", "Remove", "Import a trace", "Acknowledge", "Silence"}
                assert offered(page) & ((CHANGES - {"Share…"}) | more) == set(), view
                assert page.get_by_role("link", name="+ New").count() == 0, view
            turn_to(page, "runs")
            page.locator(".vt-row input").first.check()
            assert "Manage" not in offered(page)
        show.close()


def test_a_link_shows_its_run(tmp_path: Path, show: Opened) -> None:
    """Whoever opens it sees the charts of the run, is refused another, and is told when the link has ended."""
    home = tmp_path / "home"
    with hub_with(home, [_run("mine"), _run("other")]) as hub:
        tokens = Tokens(tokens_path(home))
        tokens.create(["admin"])
        _, text = tokens.create(["share"], project="shared", run="mine", seconds=3600)
        bearer = {"authorization": f"Bearer {text}"}
        wait_until(lambda: hub.request("GET", "/api/runs/mine").status == 401)  # it has read the tokens
        assert hub.request("GET", "/api/runs/mine", None, bearer).status == 200
        page = show(hub, f"share/{text}/mine", fresh=True)
        page.locator("h1", has_text="name of mine").wait_for()
        assert "#/run/mine" in page.url
        turn_to(page, "run/mine?tab=charts")  # one with findings opens with its diagnosis
        until(page, "document.querySelector('.chart[data-key=\"trainer/loss\"] .chart-plot')?.dataset.drawn > 0")
        assert "sst_" not in page.evaluate("document.cookie")
        assert offered(page) & CHANGES == set()
        assert page.locator("header.top nav a").count() == 0
        look_in_both_themes(page, "a shared run")
        turn_to(page, "run/other")
        page.get_by_text("this link shows the run mine and nothing else").first.wait_for()
        ended = show(hub, "share/sst_00000000_00/other", fresh=True)
        ended.get_by_text("This link shows nothing any more").wait_for()
        look_in_both_themes(ended, "a link that has ended")
        show.forgive("40")
