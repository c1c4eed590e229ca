"""Manifests of artifacts and streams of lines that are large: read in pieces, or refused in words."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.dialects.wandb.receiver import manifests
from stepscope.dialects.wandb.receiver.file_stream import MAX_LINES
from stepscope.dialects.wandb.receiver.manifests import Damaged, ManifestFiles, Manifests, count_files
from tests.dialects.wandb.receiver.test_service import UPSERT, ask, block, steps, stream
from tests.hub.conftest import JSON, RunningHub

MEGA = 1_000_000
CREATE = """mutation Create { createArtifact(input: {projectName: "p", artifactTypeName: "data",
  artifactCollectionName: "large", digest: "d"}) { artifact { id } } }"""
MANIFEST = """mutation Manifest($id: ID!) { createArtifactManifest(input: {artifactID: $id, name: "m", digest: "d"}) {
  artifactManifest { file { uploadUrl } } } }"""
COMMIT = "mutation Commit($id: ID!) { commitArtifact(input: {artifactID: $id}) { artifact { fileCount size } } }"
FILES = """query Files($id: ID!, $after: String, $names: [String!]) { artifact(id: $id) {
  files(first: 3, after: $after, names: $names) { totalCount edges { node { name sizeBytes } } } } }"""
DIGEST = "1B2M2Y8AsgTpgAmY7PhCfg=="


def entry(number: int) -> str:
    """The entry of one file."""
    return (
        f'"folder/file-{number:07}": {{"digest": "{DIGEST}", "birthArtifactID": "QXJ0aWZhY3Q6MQ==", "size": {number}}}'
    )


def manifest(count: int) -> Iterator[bytes]:
    """A manifest as the client writes it, in parts."""
    yield b'{"version": 1, "storagePolicy": "wandb-storage-policy-v1", "storagePolicyConfig": {}, "contents": {'
    for start in range(0, count, 1000):
        part = ", ".join(entry(number) for number in range(start, min(start + 1000, count)))
        yield (", " if start else "").encode() + part.encode()
    yield b"}}"


def start_measuring(hub: RunningHub) -> int:
    """Forget the highest memory use of a hub so far; return its present use in bytes."""
    assert hub.process is not None
    Path(f"/proc/{hub.process.pid}/clear_refs").write_text("5")
    return highest(hub)


def highest(hub: RunningHub) -> int:
    """The highest memory use of a hub, in bytes."""
    assert hub.process is not None
    said = Path(f"/proc/{hub.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in said if line.startswith("VmHWM"))


def put(hub: RunningHub, url: str, parts: Iterator[bytes]) -> tuple[int, Any]:
    """Upload a manifest."""
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=300)
    connection.request("PUT", url.partition(str(hub.port))[2], parts, encode_chunked=True)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def made(hub: RunningHub) -> tuple[str, str]:
    """Create an artifact; its id, and where to put its manifest."""
    id = ask(hub, CREATE)["createArtifact"]["artifact"]["id"]
    file = ask(hub, MANIFEST, id=id)["createArtifactManifest"]["artifactManifest"]["file"]
    return id, file["uploadUrl"]


def test_a_large_manifest_needs_little_memory(hub: RunningHub) -> None:
    """A manifest of 200,000 files is uploaded, committed, listed in pages and searched, in little memory."""
    id, url = made(hub)
    before = start_measuring(hub)
    assert put(hub, url, manifest(200_000)) == (200, {})
    committed = ask(hub, COMMIT, id=id)["commitArtifact"]["artifact"]
    assert committed == {"fileCount": 200_000, "size": sum(range(200_000))}
    page = ask(hub, FILES, id=id, after="199999")["artifact"]["files"]
    assert page == {"totalCount": 200_000, "edges": [{"node": {"name": "folder/file-0199999", "sizeBytes": 199_999}}]}
    one = ask(hub, FILES, id=id, names=["folder/file-0123456", "none"])["artifact"]["files"]
    assert [edge["node"]["sizeBytes"] for edge in one["edges"]] == [123_456]
    assert highest(hub) - before < 100 * MEGA


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[]", "'{' is missing"),
        (b'{"contents": {"a": {"size": 1}}}', "digest"),
        (b'{"contents": {"a": {"digest": "x", "size": "1"}}}', "size"),
        (b'{"contents": {"a": {"digest": "x"', "byte 19"),
        (b'{"contents": {5: {"digest": "x"}}}', "byte 14"),
        (b'{"other": "' + b"x" * 2_000_000 + b'"}', "more than"),
        (b"{" + b"[" * 100_000, "not JSON"),
        (b"", "cut off"),
    ],
)
def test_what_is_no_manifest_is_refused(hub: RunningHub, text: bytes, reason: str) -> None:
    """The answer says what is wrong and where; the artifact stays as it was."""
    _, url = made(hub)
    status, said = put(hub, url, iter([text]))
    assert status == 400
    assert reason in said["error"]


def test_a_manifest_beyond_the_limit_is_refused(hub: RunningHub) -> None:
    """The upload ends as soon as it is too large."""
    _, url = made(hub)
    part = b" " * MEGA
    sent = (part for _ in range(manifests.MAX_BYTES // MEGA + 50))
    try:
        status, said = put(hub, url, sent)
    except OSError:  # it closed the connection while we still sent
        return
    assert status == 413
    assert str(manifests.MAX_BYTES) in said["error"]


def test_pages_are_those_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of the pieces, with spaces, escapes and other scripts, each page has its entries in order."""
    names = [f'ä"{number}\\/\u4e2d\U0001f600\n' for number in range(2500)]
    contents = {name: {"digest": "d", "size": at, "extra": {"a": [1, {}]}} for at, name in enumerate(names)}
    for indent, ascii in ((None, True), (3, False)):
        path = tmp_path / f"{indent}.json"
        path.write_text(json.dumps({"contents": contents, "version": 1}, indent=indent, ensure_ascii=ascii))
        for piece in (64, 1000, 256 * 1024):
            monkeypatch.setattr(manifests, "_PIECE", piece)
            assert count_files(path) == (2500, sum(range(2500)))
            found = ManifestFiles(Manifests(), path, 2500, lambda: None)
            assert [each.name for start in range(0, 2500, 700) for each in found[start : start + 700]] == names
            assert found[2000].entry.size == 2000
            assert [each.name for each in found[1990:2010]] == names[1990:2010]


def test_a_manifest_that_is_gone_has_no_files(tmp_path: Path) -> None:
    """A page of it is empty, and counting says why."""
    assert Manifests().page(tmp_path / "none", 0, 5, lambda: None) == []
    (tmp_path / "damaged").write_text("{")
    assert Manifests().named(tmp_path / "damaged", ["a"]) == {}
    with pytest.raises(Damaged):
        count_files(tmp_path / "damaged")


@pytest.mark.parametrize("content", [["{}"] * (MAX_LINES + 1), "\n" * (MAX_LINES + 1)], ids=["list", "text"])
def test_more_lines_than_a_client_sends_are_refused(hub: RunningHub, content: Any) -> None:
    """The answer names the limit, and the memory of the hub hardly grows."""
    ask(hub, UPSERT, name="lines", project="p")
    before = start_measuring(hub)
    answer = stream(hub, "lines", files={"wandb-history.jsonl": {"offset": 0, "content": content}})
    assert (answer.status, str(MAX_LINES) in answer.json()["error"]) == (413, True)
    assert highest(hub) - before < 60 * MEGA


def test_as_many_lines_as_a_client_sends_are_stored(hub: RunningHub) -> None:
    """A block of many lines is parsed in parts, and each line has its step."""
    ask(hub, UPSERT, name="long", project="p")
    empty = ["{}"] * 150_000
    files = block(0, *range(3))
    files["wandb-history.jsonl"]["content"] += [*empty, json.dumps({"loss": 1.0, "_step": 7, "_timestamp": 1.7e9 + 9})]
    before = start_measuring(hub)
    body = json.dumps({"files": files}).encode()
    assert hub.post("/files/team/p/long/file_stream", body, JSON).status == 200
    assert highest(hub) - before < 100 * MEGA
    assert steps(hub, "long", 4) == [0, 1, 2, 7]
