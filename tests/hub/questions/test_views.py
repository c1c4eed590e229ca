"""Saved views over HTTP: listed, saved, renamed, made the default, deleted; each project has its own."""

from collections.abc import Callable
from typing import Any

from stepscope.hub.dashboards import saved_views
from stepscope.hub.service import Hub
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
    assert ask("PUT", PATH, json={"notes": f"  {text}\n"}).json() == {"views": [], "notes": text}
    made = ask("POST", PATH, json={"name": "v", "query": ""}).json()
    assert get("/api/views", project="gpt") == {"views": [made], "notes": text}
    assert get("/api/views", project="tiny")["notes"] == ""
    assert ask("DELETE", f"/api/views/{made['id']}?project=gpt").status_code == 200
    assert get("/api/views", project="gpt")["notes"] == text
    for body in ({"notes": "n" * (LONGEST_NOTES + 1)}, {"notes": 1}, {}, {"notes": "", "more": 1}):
        assert ask("PUT", PATH, json=body).status_code == 400, body
    for _ in range(2):
        assert ask("PUT", PATH, json={"notes": " "}).json() == {"views": [], "notes": ""}
    assert list((hub.home.home / "views").iterdir()) == []


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
