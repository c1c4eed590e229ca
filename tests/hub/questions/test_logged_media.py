"""Media that our own SDK logged, over HTTP: found by key and step, sent safely, and listed among the files."""

import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.hub.questions import files
from stepscope.hub.questions.files import media
from stepscope.hub.service import Hub
from stepscope.journal import layout
from stepscope.journal.blobs import blobs_of
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event
from tests.hub.questions.conftest import Get
from tests.hub.questions.test_files import SVG, png
from tests.hub.questions.world import START, began

Ask = Callable[..., Any]
WRITER = Writer(id="r0-a1-host-7-abc", run="logged", project="vision", wall_ns=START)
PAGE = b"<html><script>alert(1)</script></html>"
BOMB = b"PK\x03\x04" + zlib.compress(bytes(10_000_000), 9)
HUGE = png()[:16] + (2**31 - 1).to_bytes(4, "big") * 2 + png()[24:]
"""A PNG that says that it has 2**62 pixels."""


@pytest.fixture(scope="module")
def run(hub: Hub) -> str:
    """A run with media of every kind beside its journal."""
    blobs = blobs_of(layout.writer_folder(hub.home.home, "logged", WRITER.id))

    def logged(step: int, key: str, kind: str, data: bytes, name: str, **more: Any) -> Event:
        digest, _ = blobs.put(data)
        attrs = {"key": key, "kind": kind, "sha256": digest, "size": len(data), "format": "x", "name": name, **more}
        return Event(START + step, step, None, None, None, 9, EVENT_MEDIA, attrs)

    records = [
        began({}),
        *(logged(step, "val/image", "image", png() + bytes([step]), f"i-{step}.png", caption="a") for step in range(3)),
        *(logged(4, "pair", "image", png() + bytes([9, n]), f"p-{n}.png", caption=f"{n}", index=n) for n in range(2)),
        logged(5, "drawing", "image", SVG, "drawing.svg"),
        logged(5, "page", "html", PAGE, "page.html"),
        logged(5, "bomb", "file", BOMB, "bomb.zip"),
        logged(5, "huge", "image", HUGE, "huge.png"),
        logged(5, "liar", "image", PAGE, '../../etc/passwd\r\nX: y".png'),
        Event(START, 6, None, None, None, 9, EVENT_MEDIA, {"key": "odd", "kind": 7, "sha256": 5}),
        Event(START, 6, None, None, None, 9, EVENT_MEDIA, {"key": "gone", "kind": "image", "sha256": "0" * 64}),
    ]
    hub.store.write(Batch(WRITER, 1, records))
    return "/api/runs/logged"


def test_media_are_found_by_key_and_step(get: Get, run: str) -> None:
    """Those of one call are one entry; a record without a digest is none."""
    found = get(f"{run}/media")["media"]
    assert {each["key"] for each in found} == {
        "val/image", "pair", "drawing", "page", "bomb", "huge", "liar", "gone"
    }  # fmt: skip
    images = get(f"{run}/media", key="val/image")["media"]
    assert [(each["step"], each["kind"], len(each["files"])) for each in images] == [(n, "image", 1) for n in range(3)]
    (pair,) = get(f"{run}/media", key="pair")["media"]
    assert [each["caption"] for each in pair["files"]] == ["0", "1"]
    assert [each["kind"] for each in found if each["key"] in ("page", "bomb")] == ["file", "html"]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("val/image", "image/png"),
        ("drawing", "image/svg+xml"),
        ("huge", None),
        ("page", None),
        ("bomb", None),
        ("liar", None),
    ],
)
def test_content_is_sent_so_that_nothing_runs(get: Get, ask: Ask, run: str, key: str, shown: str | None) -> None:
    """Images are shown under a policy without scripts; pages, archives, huge images and what lies are downloads."""
    name = get(f"{run}/media", key=key)["media"][0]["files"][0]["name"]
    answer = ask("GET", f"{run}/files/content", params={"name": name})
    assert answer.status_code == 200
    assert hashlib.sha256(answer.content).hexdigest() == name.split("/")[1]
    assert answer.headers["content-type"] == (shown or "application/octet-stream")
    assert answer.headers["content-disposition"].startswith("inline" if shown else "attachment")
    assert "\n" not in answer.headers["content-disposition"]
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "script-src" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_no_name_leads_elsewhere(get: Get, run: str) -> None:
    """Only the digest of a blob of this run finds something, whatever stands around it."""
    digest = "0" * 64
    for name in (
        f"media/{digest}/x",
        f"media/{digest}",
        f"media/{digest}/../x",
        f"media/../{digest}/x",
        f"media/{digest}/a/b",
    ):
        get(f"{run}/files/content", expect=404, name=name)
    there = get(f"{run}/media", key="pair")["media"][0]["files"][0]["name"]
    get("/api/runs/big/files/content", expect=404, name=there)
    get("/api/runs/big/files/content", expect=404, name=there, artifact="x")


def test_they_are_among_the_files(get: Get, run: str) -> None:
    """With size, step and what they are by their content; one that is missing says so."""
    answer = get(f"{run}/files")
    kinds = {each["name"].split("/")[2]: (each["kind"], each["step"]) for each in answer["files"]}
    assert [*kinds] == sorted(kinds), "in the order of their own names, not of their digests"
    assert kinds["i-2.png"] == ("image", 2)
    assert kinds["page.html"] == ("text", 5)
    assert kinds["bomb.zip"] == ("binary", 5)
    assert [each["name"].split("/")[2] for each in get(f"{run}/files", q="p-1")["files"]] == ["p-1.png"]
    name = next(each["name"] for each in answer["files"] if each["name"].endswith("page.html"))
    assert get(f"{run}/files/text", name=name)["text"] == PAGE.decode()


def test_copies_of_artifacts_hide_no_media(hub: Hub, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied files of artifacts, newer than the images, count neither among the media nor among the logged files."""

    def named(at: int, name: str, **more: Any) -> Event:
        attrs = {"kind": "image", "sha256": f"{at:064x}", "size": 1, "name": name, **more}
        return Event(START + at, at, None, None, None, 9, EVENT_MEDIA, attrs)

    copies = [named(10 + n, f"c{n}.bin", artifact="model") for n in range(5)]
    writer = Writer(id="copies", run="copies", project="vision", wall_ns=START)
    hub.store.write(Batch(writer, 1, [began({}), named(1, "a.png", key="a"), named(2, "b.png", key="b"), *copies]))
    monkeypatch.setattr(media, "MAX_RECORDS", 2)
    monkeypatch.setattr(files, "MAX_LISTED", 2)
    found = get("/api/runs/copies/media")
    assert ([each["key"] for each in found["media"]], found["more"]) == (["a", "b"], False)
    listed = [each["name"].split("/")[2] for each in get("/api/runs/copies/files")["files"] if not each["artifact"]]
    assert listed == ["a.png", "b.png"]


def test_a_place_that_is_no_number(hub: Hub, get: Get) -> None:
    """A layer whose place is a list is drawn over the first image."""

    def named(kind: str, digest: str, **more: Any) -> Event:
        attrs = {"key": "k", "kind": kind, "sha256": digest * 64, "size": 1, "name": "x", **more}
        return Event(START, 1, None, None, None, 9, EVENT_MEDIA, attrs)

    writer = Writer(id="odd-place", run="odd-place", project="vision", wall_ns=START)
    layer = named("boxes", "b", layer="truth", index=[1, 2])
    hub.store.write(Batch(writer, 1, [began({}), named("image", "a", index={"a": 1}), layer]))
    (shown,) = get("/api/runs/odd-place/media")["media"]
    assert [each["group"] for each in shown["files"][0]["layers"]] == ["truth"]
