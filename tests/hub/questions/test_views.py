"""Saved views over HTTP: listed, saved, renamed, made the default, deleted; each project has its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.hub.dashboards import saved_views
from stepscope.hub.dashboards.saved_views import SavedViews, View
from stepscope.hub.refusals import Refused
from stepscope.hub.service import Hub
from stepscope.hub.texts import TextFiles, version_of
from stepscope.model.run_description import LONGEST_NOTES
from tests.hub.questions.conftest import Get

Ask = Callable[..., Any]
PATH = "/api/views?project=gpt"


def names(get: Get, project: str = "gpt") -> list[tuple[str, bool]]:
    """The views of a project, and which is the default."""
    return [(each["name"], each["default"]) for each in get("/api/views", project=project)["views"]]


def test_a_view_is_saved_renamed_made_default_and_deleted(ask: Ask, get: Get, hub: Hub) -> None:
    """The query comes back as it was saved, in order of names; one view at most is the default."""
    query = "sort=best.loss&pin=trainer%2Floss"
    first = ask("POST", PATH, json={"name": "Best first", "query": query, "default": True})
    assert first.status_code == 200
    saved = first.json()
    assert get("/api/views", project="gpt")["views"] == [saved]
    assert saved["query"] == query
    other = ask("POST", PATH, json={"name": "a second", "query": ""}).json()
    assert names(get) == [("a second", False), ("Best first", True)]
    path = f"/api/views/{other['id']}?project=gpt"
    assert ask("PATCH", path, json={"name": "renamed", "default": True}).json()["query"] == ""
    assert names(get) == [("Best first", False), ("renamed", True)]
    assert ask("PATCH", path, json={"default": False, "query": "x=time"}).json()["name"] == "renamed"
    assert names(get) == [("Best first", False), ("renamed", False)]
    assert names(get, "tiny") == []
    assert ask("DELETE", path).json() == {"id": other["id"], "deleted": True}
    assert ask("DELETE", path).status_code == 404
    assert len(list((hub.home.home / "views").iterdir())) == 1
    assert ask("DELETE", f"/api/views/{saved['id']}?project=gpt").status_code == 200
    assert list((hub.home.home / "views").iterdir()) == []


def test_notes_of_a_project(ask: Ask, get: Get, hub: Hub) -> None:
    """They are replaced, stay when views change, are removed when they are empty, and are of one project."""
    text = "# Plan\n\n```chart\ntrain/loss\n```"
    answer = ask("PUT", PATH, json={"notes": f"  {text}\n"}).json()
    assert answer == {"views": [], "notes": text, "version": version_of(text)}
    made = ask("POST", PATH, json={"name": "v", "query": ""}).json()
    assert get("/api/views", project="gpt") == {"views": [made], "notes": text, "version": version_of(text)}
    assert get("/api/views", project="tiny")["notes"] == ""
    assert ask("DELETE", f"/api/views/{made['id']}?project=gpt").status_code == 200
    assert get("/api/views", project="gpt")["notes"] == text
    for body in ({"notes": "n" * (LONGEST_NOTES + 1)}, {"notes": 1}, {}, {"notes": "", "more": 1}):
        assert ask("PUT", PATH, json=body).status_code == 400, body
    for _ in range(2):
        assert ask("PUT", PATH, json={"notes": " "}).json() == {"views": [], "notes": "", "version": ""}
    assert list((hub.home.home / "views").iterdir()) == []


def test_notes_of_somebody_else_are_not_replaced_unseen(ask: Ask, get: Get) -> None:
    """A change that names the version it was made from is refused once there is another; else the last one counts."""
    first = get("/api/views", project="gpt")["version"]
    second = ask("PUT", PATH, json={"notes": "of one", "version": first}).json()["version"]
    for stale in (first, "0" * 16):
        refused = ask("PUT", PATH, json={"notes": "of another", "version": stale})
        assert (refused.status_code, "in the meantime" in refused.json()["error"]["message"]) == (409, True)
    assert get("/api/views", project="gpt")["notes"] == "of one"
    assert ask("PUT", PATH, json={"notes": "", "version": second}).status_code == 200
    assert ask("PUT", PATH, json={"notes": "", "version": second}).status_code == 409
    assert ask("PUT", PATH, json={"notes": ""}).status_code == 200


def test_what_is_changed_during_a_change_is_kept(ask: Ask, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another request may change another field of a view between reading and writing: both changes are kept."""
    made = ask("POST", PATH, json={"name": "mine", "query": ""}).json()
    plain = SavedViews.change

    def late(self: SavedViews, project: str, make: Callable[[list[View]], list[View]]) -> None:
        plain(self, project, lambda views: [msgspec.structs.replace(each, query="x=time") for each in views])
        plain(self, project, make)

    path = f"/api/views/{made['id']}?project=gpt"
    with monkeypatch.context() as patched:
        patched.setattr(SavedViews, "change", late)
        answer = ask("PATCH", path, json={"name": "renamed"}).json()
    assert (answer["name"], answer["query"]) == ("renamed", "x=time")
    assert get("/api/views", project="gpt")["views"] == [answer]
    assert ask("DELETE", path).status_code == 200


def test_the_last_view_is_not_deleted_with_one_that_was_just_saved(tmp_path: Path) -> None:
    """A change that leaves nothing is refused when another came first, as any change is, and what that saved stays."""
    views = SavedViews(TextFiles(tmp_path, saved_views.LONGEST))
    first, second = (View(id=name, name=name, query="") for name in ("first", "second"))
    views.change("p", lambda known: [first])

    def meanwhile(known: list[View]) -> list[View]:
        views.change("p", lambda known: [*known, second])
        return []

    with pytest.raises(Refused):
        views.change("p", meanwhile)
    assert views.of("p") == [first, second]


def test_what_is_refused(ask: Ask, get: Get) -> None:
    """A name that is taken, blank or too long, a view of another project, and a body that is not understood."""
    made = ask("POST", PATH, json={"name": "mine", "query": ""}).json()
    assert ask("POST", PATH, json={"name": "mine", "query": ""}).status_code == 409
    for body in (
        {"name": "  ", "query": ""},
        {"name": "n" * 101, "query": ""},
        {"name": "long", "query": "q" * (saved_views.LONGEST_QUERY + 1)},
        {"name": "no query"},
        {"name": "more", "query": "", "other": 1},
    ):
        assert ask("POST", PATH, json=body).status_code == 400, body
    assert ask("PATCH", f"/api/views/{made['id']}?project=tiny", json={"name": "x"}).status_code == 404
    assert ask("GET", "/api/views").status_code == 400
    assert names(get) == [("mine", False)]
    assert ask("DELETE", f"/api/views/{made['id']}?project=gpt").status_code == 200


def test_views_are_bounded(ask: Ask, get: Get) -> None:
    """A project has a limited number of views; one more is refused, and says what to do."""
    for number in range(saved_views.MAX_VIEWS):
        assert ask("POST", "/api/views?project=many", json={"name": f"v{number}", "query": ""}).status_code == 200
    refused = ask("POST", "/api/views?project=many", json={"name": "one more", "query": ""})
    assert refused.status_code == 409
    assert "delete some" in refused.json()["error"]["message"]


def test_a_damaged_file_costs_its_views_and_nothing_else(ask: Ask, get: Get, hub: Hub) -> None:
    """The project opens as if it had none, and the next view that is saved mends the file."""
    assert ask("POST", "/api/views?project=torn", json={"name": "lost", "query": ""}).status_code == 200
    (path,) = [each for each in (hub.home.home / "views").iterdir() if "lost" in each.read_text()]
    path.write_text("{")
    assert names(get, "torn") == []
    assert ask("POST", "/api/views?project=torn", json={"name": "new", "query": ""}).status_code == 200
    assert names(get, "torn") == [("new", False)]
