"""The same script through the unmodified client, the shim, and our own calls: the page of the run has the same data."""

import importlib.util
import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.dialects.wandb.receiver.conftest import points, run_wandb, sql, wait_state
from tests.hub.conftest import PACKAGE, RunningHub
from tests.waiting import wait_until

SCRIPTS = Path(__file__).parent / "scripts"
GIF = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)


def wav() -> bytes:
    """A short sound."""
    data = bytes(16)
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


def source(name: str, id: str, *, shim: bool, project: str) -> str:
    """A script; the shim only changes the import."""
    text = (SCRIPTS / f"{name}.py").read_text()
    if shim:
        text = text.replace("import wandb\n", "import stepscope.compat.wandb as wandb\n")
        text = f"from stepscope.sdk import checkpoints\ncheckpoints.COPY_SECONDS = 60.0\n{text}"
    known = {"RUN_OF_TEST": id, "PROJECT_OF_TEST": project}
    return f"import os, sys\nsys.path.append({SITE!r})\nos.environ.update({known})\n{text}"


(_PLACE,) = importlib.util.find_spec("pandas").submodule_search_locations or ()  # type: ignore[union-attr]
SITE = str(Path(_PLACE).parent)


def run_each(hub: RunningHub, name: str, place: Path) -> None:
    """Run a script through the client, the shim and our own calls, as runs of their own."""
    for way in ("client", "shim", "own"):
        folder = place / way
        folder.mkdir(parents=True)
        (folder / "clip.gif").write_bytes(GIF)
        (folder / "sound.wav").write_bytes(wav())
    run_wandb(hub, place / "client", source(name, f"{name}-client", shim=False, project="made-client"))
    _run(hub, place / "shim", "-c", source(name, f"{name}-shim", shim=True, project="made-shim"))
    known = {"RUN_OF_TEST": f"{name}-own", "PROJECT_OF_TEST": "made-own"}
    _run(hub, place / "own", str(SCRIPTS / "own.py"), name, **known)


def _run(hub: RunningHub, place: Path, *arguments: str, **env: str) -> None:
    """Run a program that records in the home of the hub; it must record everything."""
    known = {"PATH": "/usr/bin:/bin", "HOME": str(place), "STEPSCOPE_HOME": str(hub.home), "STEPSCOPE_PROBES": "0"}
    known["STEPSCOPE_EXIT_TIMEOUT"] = "150"
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**known, "PYTHONPATH": str(PACKAGE), **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("not supported", "rejected", "dropped"):
        assert word not in done.stderr, done.stderr


def ask(hub: RunningHub, path: str) -> Any:
    """Ask the API."""
    answer = hub.request("GET", path)
    assert answer.status == 200, answer.body
    return answer.json()


def media(hub: RunningHub, run: str) -> dict[str, list[Any]]:
    """Kind, step, files with their captions and layers, texts and charts of each key."""
    found: dict[str, list[Any]] = {}
    for each in ask(hub, f"/api/runs/{run}/media")["media"]:
        if each["kind"] == "table":
            continue  # the client also keeps tables as files; their rows are compared
        files = [
            (file["caption"], sorted((layer["kind"], layer["group"]) for layer in file["layers"]))
            for file in each["files"]
        ]
        found.setdefault(each["key"], []).append((each["kind"], each["step"], files, each["text"], each["chart"]))
    return found


NO_CALL = ("spread", "pr", "roc")
"""Charts of a histogram, and of curves that wandb computes; ours are drawn of given points."""


def drawn(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Media without the names of columns, which are wandb's own in its charts."""
    return {
        key: [
            (kind, step, [layers for _, layers in files], None if chart is None else chart["style"])
            for kind, step, files, _, chart in each
        ]
        for key, each in found.items()
    }


def tables(hub: RunningHub, run: str) -> dict[str, list[Any]]:
    """The samples of a run: step and cells, by table; what a cell says of an image differs."""
    rows = sql(
        hub,
        "SELECT s.name, s.step, attr_names, attr_values FROM samples AS s INNER JOIN runs AS r ON r.run = s.run "
        f"WHERE r.id = '{run}' ORDER BY s.name, s.step, s.time",
    )
    found: dict[str, list[Any]] = {}
    for name, step, columns, values in rows:
        cells = {key: _cell(value) for key, value in zip(columns, values, strict=True) if key != "picture"}
        found.setdefault(name, []).append((int(step), cells))
    return {name: sorted(each, key=str) for name, each in found.items()}


def _cell(value: str) -> Any:
    try:
        return float(value)
    except ValueError:
        return value


def histograms(hub: RunningHub, run: str) -> list[list[Any]]:
    """The distributions of a run."""
    return sql(
        hub,
        "SELECT s.key, h.step, h.count FROM histograms AS h INNER JOIN series AS s ON s.series = h.series "
        f"INNER JOIN runs AS r ON r.run = s.run WHERE r.id = '{run}' ORDER BY s.key, h.step",
    )


def chosen(run: dict[str, Any]) -> dict[str, Any]:
    """What a script says of its run."""
    fields = ("project", "name", "status", "tags", "job_type", "config", "attempts", "parent", "from_step")
    return {field: run[field] for field in fields}


def summary(hub: RunningHub, run: str) -> dict[str, Any]:
    """The summary without the client's own keys and media."""
    found: dict[str, float] = {}
    for names, values in sql(
        hub,
        "SELECT attr_names, attr_values FROM logs AS l INNER JOIN runs AS r ON r.run = l.run "
        f"WHERE r.id = '{run}' AND l.name = 'train.summary' ORDER BY l.time",
    ):
        pairs = {key: _cell(value) for key, value in zip(names, values, strict=True) if not key.startswith("_")}
        found |= {key: value for key, value in pairs.items() if isinstance(value, float) and math.isfinite(value)}
    return found


def settled(hub: RunningHub, name: str, *suffixes: str) -> list[tuple[str, str, str]]:
    """Wait for the runs of each way; their ids."""
    pairs = [(f"{name}-client{end}", f"{name}-shim{end}", f"{name}-own{end}") for end in suffixes or ("",)]
    for pair in pairs:
        for run in pair:
            wait_state(hub, run, "finished")
    return pairs


@pytest.mark.parametrize("name", ["scalars", "tables", "media", "plots"])
def test_one_run(hub: RunningHub, tmp_path: Path, name: str) -> None:
    """Numbers, distributions, media, charts, samples, configuration and summary are equal."""
    run_each(hub, name, tmp_path)
    ((client, shim, own),) = settled(hub, name)
    described = [chosen(ask(hub, f"/api/runs/{run}")) for run in (client, shim)]
    for each in described if name != "scalars" else ():
        each.pop("name")  # without one, each has its own
    assert described[0] == described[1]
    assert points(hub, client) == points(hub, shim)
    assert histograms(hub, client) == histograms(hub, shim)
    wait_until(lambda: tables(hub, client) == tables(hub, shim), 60) if name == "tables" else None
    assert tables(hub, client) == tables(hub, shim)
    both = media(hub, client), media(hub, shim)
    pictures = [each.pop("pictures/picture", None) for each in both]
    assert pictures[1] is None if name != "tables" else pictures[1][0][0] == "image"
    assert both[0] == both[1]
    assert summary(hub, client) == summary(hub, shim)
    assert points(hub, own) == points(hub, client)
    assert histograms(hub, own) == histograms(hub, client)
    ours = drawn(media(hub, own))
    pictures.append(ours.pop("pictures/picture", None))
    theirs = {key: each for key, each in drawn(both[0]).items() if each[0][0] != "text" and key not in NO_CALL}
    assert ours == theirs
    if name == "tables":
        assert tables(hub, own) == tables(hub, client)
    mine = chosen(ask(hub, f"/api/runs/{own}"))
    assert {field: mine[field] for field in ("config", "tags", "status")} == {
        field: described[0][field] for field in ("config", "tags", "status")
    }


def made(hub: RunningHub, run: str) -> list[Any]:
    """The artifacts that a run made, with their files."""
    found = ask(hub, f"/api/runs/{run}/artifacts")["made"]
    files = ask(hub, f"/api/runs/{run}/files?limit=1000")["files"]
    shown = []
    for each in found:
        label = f"{each['name']}:{each['version']}"
        contents = {}
        for file in files:
            if file["artifact"] == label:
                path = f"/api/runs/{run}/files/content?name={quote(file['name'])}&artifact={quote(label)}"
                name = file["name"].split("/", 2)[2] if file["name"].startswith("media/") else file["name"]
                contents[name] = hub.request("GET", path).body
        users = [user.rpartition("-")[2] for user in each["used_by"]]
        shown.append((label, each["kind"], each["bytes"], each["files"], each["aliases"], users, contents))
    return shown


def used(hub: RunningHub, run: str) -> list[Any]:
    """The artifacts that a run used."""
    found = ask(hub, f"/api/runs/{run}/artifacts")["used"]
    return [(each["name"], each["version"], each["kind"], each["made_by"].rpartition("-")[2]) for each in found]


def test_artifacts(hub: RunningHub, tmp_path: Path) -> None:
    """Versions, files and their contents, links, aliases, and who made what is used, are equal."""
    run_each(hub, "artifacts", tmp_path)
    (first, second) = settled(hub, "artifacts", "-made", "-used")
    wait_until(lambda: made(hub, first[0]) == made(hub, first[1]) == made(hub, first[2]), 60)
    found = made(hub, first[1])
    assert {each[0] for each in found} == {"dataset:v0", "model:v0", "model:v1", "zoo:v0"}
    newest = next(each for each in found if each[0] == "model:v1")
    assert newest[6] == {"model.pt": b"weights 1", "notes/readme.txt": b"epoch 1"}
    assert newest[5] == ["used"]
    assert used(hub, second[0]) == used(hub, second[1]) == used(hub, second[2])
    assert used(hub, second[1]) == [("dataset", "v0", "dataset", "made"), ("model", "v1", "model", "made")]


def test_forks(hub: RunningHub, tmp_path: Path) -> None:
    """A resumed run continues; a fork has its parent and begins after its step; a rewound one is a new attempt."""
    run_each(hub, "forks", tmp_path)
    pairs = settled(hub, "forks", "-first", "-fork")
    for client, shim, own in pairs:
        described = [chosen(ask(hub, f"/api/runs/{run}")) for run in (client, shim)]
        parents = [each.pop("parent") for each in described]
        for each in described:
            each.pop("name")
        assert described[0] == described[1]
        wanted = ["forks-client-first", "forks-shim-first"] if client.endswith("fork") else [None, None]
        assert [parent or None for parent in parents] == wanted
        wait_until(lambda: points(hub, client) == points(hub, shim) == points(hub, own), 60)  # noqa: B023
        mine = chosen(ask(hub, f"/api/runs/{own}"))
        assert {field: mine[field] for field in ("attempts", "from_step", "config")} == {
            field: described[0][field] for field in ("attempts", "from_step", "config")
        }
    assert chosen(ask(hub, "/api/runs/forks-shim-first"))["attempts"] == 3
    assert chosen(ask(hub, "/api/runs/forks-shim-fork"))["from_step"] == 5
    assert {step for _, _, step in points(hub, "forks-shim-fork")} == {6, 7, 8, 9}
