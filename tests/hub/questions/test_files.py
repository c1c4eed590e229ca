"""Stored files and logged media of a run, over HTTP."""

import gzip
import io
import json
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.hub.questions.files.file_types import MAX_PIXELS, file_type
from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Log
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import START, began

Ask = Callable[..., Any]
TABLE = {"columns": ["a", "b"], "data": [[1, "x" * 20_000], [float("nan"), {"_type": "image-file", "path": "i.png"}]]}
SVG = b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def png(wide: int = 1, tall: int = 1) -> bytes:
    """An image of one pixel, or one that claims to have more."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = wide.to_bytes(4, "big") + tall.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    )


FILES = {
    "media/images/a.png": png(),
    "liar.png": b"<html><script>alert(1)</script></html>",
    "page.html": b"<script>alert(1)</script>",
    "drawing.svg": SVG,
    "t.table.json": json.dumps(TABLE).encode(),
    "rows.csv": b'a,b\r\n1,"x, y"\r\n',
    "weights.bin": bytes(range(256)),
    "a ü.txt": "tüxt".encode(),
}


@pytest.fixture(scope="module")
def run(hub: Hub, ask: Ask) -> str:
    """A run of another client than the SDK, with uploaded files and media at steps."""
    writer = Writer(id="w", run="media", project="vision", name="m", wall_ns=START)
    image = {"_type": "image-file", "path": "media/images/a.png", "caption": "a cat"}
    several = {"_type": "images/separated", "filenames": ["1.png", "2.png"], "captions": ["one", "two"], "count": 2}
    table = {"_type": "table-file", "path": "t.table.json", "artifact_path": "wandb-client-artifact://Ab1/t.table.json"}
    sounds = {"_type": "audio", "count": 1, "audio": [{"_type": "audio-file", "path": "s.wav", "caption": "beep"}]}
    records = [
        began({}),
        *(
            Event(START + n, n, None, None, None, 9, "wandb.values", {"sample": image, "many": several})
            for n in range(3)
        ),
        Event(START + 9, 9, None, None, None, 9, "wandb.values", {"t": table, "s": sounds, "text": "hi", "list": [1]}),
        Event(START, 4, None, None, None, 9, "tensorboard.images", {"tag": "gen", "file": "images/x.png", "bytes": 1}),
        Log(START, 5, None, None, None, 9, "**bold**", {"tag": "notes"}, "tensorboard"),
    ]
    hub.store.write(Batch(writer, 1, records))
    for name, data in FILES.items():
        assert ask("PUT", f"/files/team/vision/media/{name}", content=data).status_code == 200
    return "/api/runs/media"


def test_files_are_listed_by_what_they_are(get: Get, run: str) -> None:
    """The kind of a file is that of its content, whatever its name says; words find some, pages give some."""
    answer = get(f"{run}/files")
    kinds = {each["name"]: each["kind"] for each in answer["files"]}
    assert kinds == {
        "a ü.txt": "text",
        "drawing.svg": "image",
        "liar.png": "text",
        "media/images/a.png": "image",
        "page.html": "text",
        "rows.csv": "table",
        "t.table.json": "table",
        "weights.bin": "binary",
    }
    assert (answer["total"], answer["bytes"]) == (len(FILES), sum(map(len, FILES.values())))
    assert [each["name"] for each in get(f"{run}/files", q="png A")["files"]] == ["liar.png", "media/images/a.png"]
    assert get(f"{run}/files", limit=2, offset=2)["next"] == 4


@pytest.mark.parametrize("name", FILES)
def test_content_has_the_type_of_its_bytes(ask: Ask, run: str, name: str) -> None:
    """Only images are shown; all else is a download. No script can run in any of them, and no type is guessed."""
    answer = ask("GET", f"{run}/files/content", params={"name": name})
    shown = {"media/images/a.png": "image/png", "drawing.svg": "image/svg+xml"}.get(name)
    assert answer.content == FILES[name]
    assert answer.headers["content-type"] == (shown or "application/octet-stream")
    assert answer.headers["content-disposition"].startswith("inline" if shown else "attachment")
    assert answer.headers.get_list("content-security-policy")[0].startswith("default-src 'none';")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "script-src" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    saved = ask("GET", f"{run}/files/content", params={"name": name, "download": "1"})
    assert saved.headers["content-disposition"].startswith("attachment")
    assert saved.headers["content-type"] == "application/octet-stream"


def bombs() -> dict[str, bytes]:
    """Files of a few kilobytes that are gigabytes once they are unpacked, or say so."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", bytes(20_000_000))
        file.writestr("../../../outside", b"escaped")
    side = (60_000).to_bytes(2, "little")
    frame = b"\xff\xc0\0\x11\x08" + (60_000).to_bytes(2) * 2
    return {
        "bomb.zip": packed.getvalue(),
        "bomb.json.gz": gzip.compress(bytes(20_000_000)),
        "bomb.png": png(60_000, 60_000),
        "bomb.gif": b"GIF89a" + side + side + bytes(20),
        "bomb.jpg": b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(10) + frame + bytes(20),
        "bomb.bmp": b"BM" + bytes(16) + (60_000).to_bytes(4, "little") + (-60_000).to_bytes(4, "little", signed=True),
        "bomb.webp": b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(8) + (60_000).to_bytes(3, "little") * 2,
    }


def test_bombs_are_downloads(hub: Hub, ask: Ask, get: Get) -> None:
    """Nothing is unpacked to be listed, shown or refused: archives, and images of more pixels than a page shows."""
    hub.store.write(Batch(Writer(id="b", run="bombs", project="vision", wall_ns=START), 1, [began({})]))
    known = bombs()
    for name, data in known.items():
        assert ask("PUT", f"/files/team/vision/bombs/{name}", content=data).status_code == 200
    tracemalloc.start()
    try:
        listed = {each["name"]: each["kind"] for each in get("/api/runs/bombs/files")["files"]}
        assert listed == dict.fromkeys(known, "binary")
        for name, data in known.items():
            answer = ask("GET", "/api/runs/bombs/files/content", params={"name": name})
            assert answer.content == data
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"].startswith("attachment")
            for part in ("text", "table"):
                get(f"/api/runs/bombs/files/{part}", expect=400, name=name)
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("wide", [10_000, 10_001])
def test_the_most_pixels_that_are_shown(wide: int) -> None:
    """At the limit an image is one, beyond it a download."""
    assert file_type(png(wide, MAX_PIXELS // 10_000)).kind == ("image" if wide == 10_000 else "binary")


@pytest.mark.parametrize(
    "name", ["../run.json", "..", "/etc/passwd", "media/../../run.json", "a\0b", "%2e%2e/run.json", "media", "none"]
)
def test_no_name_leads_out_of_the_folder(get: Get, run: str, name: str) -> None:
    """What is not a file of the run does not exist, however it is called."""
    for part in ("content", "text", "table"):
        get(f"{run}/files/{part}", expect=404, name=name)
        get(f"{run}/files/{part}", expect=404, name=name, artifact="../x")


def test_html_is_a_page_only_where_it_is_asked_for_as_one(ask: Ask, run: str) -> None:
    """Then it may be shown in a frame of the hub's own page, by a policy without scripts; nothing else becomes one."""
    shown = ask("GET", f"{run}/files/content", params={"name": "page.html", "page": "1"})
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    policy = shown.headers["content-security-policy"]
    assert ("sandbox;" in policy, "frame-ancestors 'self'" in policy, "script" in policy) == (True, True, False)
    assert shown.headers["x-frame-options"] == "SAMEORIGIN"
    for name in ("drawing.svg", "weights.bin"):
        other = ask("GET", f"{run}/files/content", params={"name": name, "page": "1"})
        assert "text/html" not in other.headers["content-type"]
        assert other.headers["x-frame-options"] == "DENY"


def test_texts_and_tables_are_read_as_data(get: Get, run: str) -> None:
    """A text comes as text in JSON, a table by pages with its numbers and words; what is neither is refused."""
    assert get(f"{run}/files/text", name="page.html")["text"] == "<script>alert(1)</script>"
    assert get(f"{run}/files/text", name="a ü.txt")["text"] == "tüxt"
    assert "not a text" in get(f"{run}/files/text", expect=400, name="weights.bin")["error"]["message"]
    table = get(f"{run}/files/table", name="t.table.json", limit=1, offset=1)
    assert (table["columns"], table["total"], table["next"]) == (["a", "b"], 2, None)
    assert table["rows"] == [["NaN", {"_type": "image-file", "path": "i.png"}]]
    assert len(get(f"{run}/files/table", name="t.table.json", limit=1)["rows"][0][1]) == 10_000
    assert get(f"{run}/files/table", name="rows.csv")["rows"] == [["1", "x, y"]]
    assert "not a table" in get(f"{run}/files/table", expect=400, name="weights.bin")["error"]["message"]


def test_media_are_found_by_key_and_step(get: Get, run: str) -> None:
    """Images, sounds, tables and texts of W&B and TensorBoard have their key, step, files and captions."""
    media = get(f"{run}/media")["media"]
    found = [(each["key"], each["kind"], each["step"], [file["name"] for file in each["files"]]) for each in media]
    assert found == [
        ("gen", "image", 4, ["images/x.png"]),
        *(("many", "image", step, ["1.png", "2.png"]) for step in range(3)),
        ("notes", "text", 5, []),
        ("s", "audio", 9, ["s.wav"]),
        *(("sample", "image", step, ["media/images/a.png"]) for step in range(3)),
        ("t", "table", 9, ["t.table.json"]),
        ("text", "text", 9, []),
    ]
    by_key = {each["key"]: each for each in media}
    assert [each["caption"] for each in by_key["many"]["files"]] == ["one", "two"]
    assert by_key["t"]["files"][0]["copy"] == {"artifact": "Ab1", "name": "t.table.json"}
    assert (by_key["text"]["text"], by_key["notes"]["text"]) == ("hi", "**bold**")
    assert {each["key"] for each in get(f"{run}/media", key="sample")["media"]} == {"sample"}


def test_files_of_imports_and_of_mlflow_are_there_too(hub: Hub, ask: Ask, get: Get, run: str) -> None:
    """Images of TensorBoard lie with the imported run, artifacts of MLflow with the hub; both are listed and read."""
    place = hub.home.home / "runs" / "media" / "files" / "images"
    place.mkdir(parents=True)
    (place / "x.png").write_bytes(png())
    Path(place / "out").symlink_to("/etc")
    assert ask("GET", f"{run}/files/content", params={"name": "images/x.png"}).content == png()
    get(f"{run}/files/content", expect=404, name="images/out/passwd")
    made = ask("POST", "/api/2.0/mlflow/runs/create", json={"experiment_id": "0", "start_time": 1}).json()
    id = made["run"]["info"]["run_id"]
    hub.store.write(Batch(Writer(id="m", run=id, project="Default", name="m", wall_ns=START), 1, [began({})]))
    folder = f"/api/2.0/mlflow-artifacts/artifacts/0/{id}/artifacts"
    image = "images/val/pred+step+7+timestamp+1790000000000+u.png"
    for name in ("model/MLmodel", image, image.replace(".png", "+compressed.webp")):
        assert ask("PUT", f"{folder}/{name}", content=png()).status_code == 200
    assert {each["name"]: each["step"] for each in get(f"/api/runs/{id}/files", q=["png", "mlmodel"][0])["files"]} == {
        image: 7
    }
    (logged,) = get(f"/api/runs/{id}/media")["media"]
    assert (logged["key"], logged["step"], logged["kind"]) == ("val/pred", 7, "image")
    assert ask("GET", f"/api/runs/{id}/files/content", params={"name": image}).content == png()


def _table(rows: bytes) -> bytes:
    return b'{"columns":["a"],"data":[' + rows + b"]}"


LARGE_IN_MEMORY = {
    "lists.table.json": _table(b"[]," * 2_000_000 + b"[]"),
    "objects.table.json": _table(b"[" + b'{"a":1},' * 1_500_000 + b"1]"),
    "row.table.json": _table(b"[" + b"1," * 3_000_000 + b"1]"),
    "lines.csv": b"\n" * 3_000_000,
    "columns.csv": b"a" + b",a" * 20_000 + b"\n",
}


def test_a_table_costs_what_it_shows(ask: Ask, get: Get, run: str) -> None:
    """A small file of millions of values or columns is refused; rows, cells and pages of others are bounded."""
    deep = b"[" * 50 + b'"' + b"x" * 60_000 + b'"' + b"]" * 50
    files = {
        **LARGE_IN_MEMORY,
        "odd.table.json": _table(b"[" + b"1," * 5000 + b"1],[" + deep + b"]"),
        "wide.csv": (b"a" + b",a" * 9_999 + b"\n") * 62,
        "deep.table.json": _table(b"[" * 900 + b"]" * 900),
    }
    for name, data in files.items():
        assert ask("PUT", f"/files/team/vision/media/{name}", content=data).status_code == 200
    for name in LARGE_IN_MEMORY:
        assert "download it" in get(f"{run}/files/table", expect=400, name=name)["error"]["message"], name
    get(f"{run}/files/table", expect=400, name="deep.table.json")
    (first,), (second,) = get(f"{run}/files/table", name="odd.table.json")["rows"]
    assert (first, len(second)) == (1, 10_000)
    wide = get(f"{run}/files/table", name="wide.csv", limit=10_000)
    assert (len(wide["rows"]), wide["next"], wide["total"]) == (50, 50, 61)
    assert len(get(f"{run}/files/table", name="wide.csv", limit=10_000, offset=50)["rows"]) == 11
