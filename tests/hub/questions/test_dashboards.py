"""Dashboards over HTTP: listed, read, kept, refused with the line, deleted; and no name leaves their folder."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.hub.dashboards.dashboard import BUILTIN
from stepscope.hub.service import Hub
from tests.hub.questions.conftest import Get

OWN = "title: Mine\ncharts:\n  - keys: [trainer/loss]\n    bands:\n      - {from: 1, level: warning}\n"
Ask = Callable[..., Any]


def test_the_built_in_ones(get: Get) -> None:
    """All of them can be read, as text and as data."""
    found = {each["name"]: each for each in get("/api/dashboards")["dashboards"]}
    assert set(BUILTIN) <= set(found)
    for name in BUILTIN:
        one = get(f"/api/dashboards/{name}")
        assert (one["builtin"], one["mistake"]) == (True, None)
        assert len(one["dashboard"]["charts"]) == found[name]["charts"]
    layout = [chart["title"] for chart in get("/api/dashboards/rl")["dashboard"]["charts"]]
    assert layout[:6] == [
        "Training loss",
        "Learning rate",
        "KL divergence",
        "Clip fraction",
        "GPU utilisation",
        "Queue depth",
    ]
    assert layout[6].startswith("Forward-backward latency")


def test_keep_read_and_delete(ask: Ask, get: Get, hub: Hub) -> None:
    """A saved dashboard is a file in the home folder, unchanged, until it is deleted."""
    kept = ask("PUT", "/api/dashboards/my-own_1", json={"yaml": OWN})
    assert kept.status_code == 200
    assert kept.json()["dashboard"]["charts"][0]["bands"][0] == {
        "from": 1.0,
        "to": None,
        "level": "warning",
        "label": "",
    }
    assert (hub.home.home / "dashboards" / "my-own_1.yaml").read_text() == OWN
    assert get("/api/dashboards/my-own_1")["yaml"] == OWN
    assert "my-own_1" in [each["name"] for each in get("/api/dashboards")["dashboards"]]
    assert ask("DELETE", "/api/dashboards/my-own_1").json() == {"name": "my-own_1", "deleted": True}
    assert ask("DELETE", "/api/dashboards/my-own_1").status_code == 404
    get("/api/dashboards/my-own_1", expect=404)


def test_a_version_that_was_replaced_is_not_replaced_unseen(ask: Ask, get: Get) -> None:
    """A save with an outdated version is refused."""
    assert ask("PUT", "/api/dashboards/both", json={"yaml": OWN, "version": ""}).status_code == 200
    version = get("/api/dashboards/both")["version"]
    newer = {"yaml": OWN.replace("Mine", "Newer"), "version": version}
    assert ask("PUT", "/api/dashboards/both", json=newer).status_code == 200
    refused = ask("PUT", "/api/dashboards/both", json={"yaml": OWN, "version": version})
    assert (refused.status_code, "in the meantime" in refused.json()["error"]["message"]) == (409, True)
    assert get("/api/dashboards/both")["yaml"] == newer["yaml"]
    assert ask("PUT", "/api/dashboards/both", json={"yaml": OWN, "version": ""}).status_code == 409
    assert ask("DELETE", "/api/dashboards/both").status_code == 200


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "%2e%2e%2fx", "A", "-a", "a.yaml", "a" * 64, "a\0", "é", " "])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_no_name_is_a_path(ask: Ask, hub: Hub, method: str, name: str) -> None:
    """What could be a path, or is no name, is refused before the file system is asked."""
    before = _dashboards(hub)
    options = {"json": {"yaml": OWN}} if method == "PUT" else {}
    url = f"/api/dashboards/{name}" if name.startswith("%") else f"/api/dashboards/{name.replace(chr(0), '%00')}"
    answer = ask(method, url, **options)
    to_the_page = answer.status_code == 307 and answer.headers["location"] == "./#/api"
    assert to_the_page or answer.status_code in (400, 404, 405)
    assert _dashboards(hub) == before


def _dashboards(hub: Hub) -> list[str]:
    """Every YAML file of the home; the folders of a running store come and go while one looks."""
    found = os.walk(hub.home.home, onerror=lambda error: None)
    return sorted(os.path.join(folder, name) for folder, _, names in found for name in names if name.endswith(".yaml"))


def test_the_built_in_ones_stay(ask: Ask) -> None:
    """Built-in dashboards can be neither replaced nor deleted."""
    for method, options in (("PUT", {"json": {"yaml": OWN}}), ("DELETE", {})):
        refused = ask(method, "/api/dashboards/rl", **options)
        assert refused.status_code == 400
        assert "built in" in refused.json()["error"]["message"]


def test_a_mistake_is_reported_with_its_line(ask: Ask, hub: Hub) -> None:
    """A text that is no dashboard is not kept; checking tells line and column."""
    wrong = "title: A\ncharts:\n  - keys: [a]\n    scale: round\n"
    refused = ask("PUT", "/api/dashboards/wrong", json={"yaml": wrong})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("line 4:")
    assert not (hub.home.home / "dashboards" / "wrong.yaml").exists()
    checked = ask("POST", "/api/dashboards", json={"yaml": wrong}).json()
    assert (checked["dashboard"], checked["mistake"]["line"]) == (None, 4)
    good = ask("POST", "/api/dashboards", json={"yaml": OWN}).json()
    assert (good["dashboard"]["title"], good["mistake"]) == ("Mine", None)
    assert ask("PUT", "/api/dashboards/x", content=b"no json").status_code == 400


def test_scopes(hub: Hub, ask: Ask) -> None:
    """Reading needs the scope read, changing admin, and a token of one project changes nothing for all."""
    tokens = hub.guard.tokens
    shown = {
        "read": tokens.create(["read"])[1],
        "admin": tokens.create(["admin"])[1],
        "one": tokens.create(["admin"], project="gpt")[1],
        "ingest": tokens.create(["ingest"])[1],
    }

    def send(who: str, method: str, **options: Any) -> int:
        headers = {"Authorization": f"Bearer {shown[who]}"} if who else {}
        status: int = ask(method, "/api/dashboards/scoped", headers=headers, **options).status_code
        return status

    body = {"json": {"yaml": OWN}}
    assert [send(who, "PUT", **body) for who in ("", "ingest", "read", "one", "admin")] == [401, 403, 403, 403, 200]
    assert [send(who, "GET") for who in ("", "ingest", "read", "one", "admin")] == [401, 403, 200, 200, 200]
    assert [send(who, "DELETE") for who in ("read", "one", "admin")] == [403, 403, 200]
