"""How long a hub takes to list and show the files of a run that logged very many."""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from benchmarks.spawn import scratch
from stepscope.hub.questions.openapi import ENDPOINTS
from stepscope.hub.questions.toolbox.endpoint import Reader
from stepscope.hub.runs.run_files import LoggedFiles
from stepscope.hub.store.store import open_store
from stepscope.journal import layout
from stepscope.journal.blobs import blobs_of
from stepscope.model.names import EVENT_MEDIA
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event

RUN, KEYS, BATCH = "many", 20, 20_000
BEGAN = 1_790_000_000 * 10**9
FILES = {each.path: each for each in ENDPOINTS}


def fill(store: object, home: Path, count: int, kept: int) -> None:
    """Store the records of files under several keys; the newest of them, as a page shows them, are on disk."""
    writer = Writer(id="w1", run=RUN, project="p", wall_ns=BEGAN)
    blobs = blobs_of(layout.writer_folder(home, RUN, "r0-a1-host-1-abcdef0123456789"))
    for first in range(0, count, BATCH):
        records = []
        for at in range(first, min(first + BATCH, count)):
            data = f"file {at}".encode()
            digest = blobs.put(data)[0] if at >= count - kept else hashlib.sha256(data).hexdigest()
            attrs = {"key": f"key {at % KEYS}", "kind": "file", "sha256": digest, "size": len(data), "format": "txt"}
            place = (BEGAN + at * 10**6, at // KEYS, None, None, None, 9)
            records.append(Event(*place, EVENT_MEDIA, {**attrs, "name": f"{at}.txt"}))
        store.write(Batch(writer, first // BATCH + 1, records))  # type: ignore[attr-defined]


def asked(reader: Reader, path: str, **given: object) -> tuple[str, dict]:
    """The median time of an answer in ms, and the answer."""
    endpoint = FILES[path]
    defaults = {each.name: each.default for each in endpoint.params}
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        answer = endpoint.answer(reader, {**defaults, "run": RUN, **given})
        took.append((time.perf_counter() - begun) * 1e3)
    return f"{median(took):8.1f} ms", answer


def main() -> None:
    """Fill a store, ask, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    args = parser.parse_args()
    with scratch() as folder:
        store = open_store(folder / "store")
        begun = time.perf_counter()
        fill(store, folder, args.files, 6000)
        print(f"{args.files:,} files stored in {time.perf_counter() - begun:.0f} s; load {os.getloadavg()[0]:.1f}")
        states: Any = None  # nobody asks for them here
        reader = Reader(store.engine, states, files=[LoggedFiles(folder, folder / "uploads")])
        took, answer = asked(reader, "/api/runs/{run}/media")
        print(f"media, the newest {sum(len(each['files']) for each in answer['media'])} {took}")
        took, _ = asked(reader, "/api/runs/{run}/media", key="key 7")
        print(f"media of one key        {took}")
        took, answer = asked(reader, "/api/runs/{run}/files", limit=200)
        print(f"files, {len(answer['files'])} of {answer['total']}    {took}")
        name = answer["files"][0]["name"]
        took, _ = asked(reader, "/api/runs/{run}/files/text", name=name)
        print(f"one file ({quote(name)[-12:]})  {took}")
        store.close()


if __name__ == "__main__":
    main()
