"""What a hub needs to show a page of the files and samples of a run that logged very many: seconds and CPU time.

python -m benchmarks.media_browse --files 1000000 --samples 1000000
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.spawn import scratch
from stepscope.hub.questions.openapi import ENDPOINTS
from stepscope.hub.questions.toolbox.endpoint import Reader
from stepscope.hub.runs.run_files import LoggedFiles
from stepscope.hub.store.store import Store, open_store
from stepscope.journal import layout
from stepscope.journal.blobs import blobs_of
from stepscope.model.names import EVENT_MEDIA, SCOPE_SAMPLES
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Log

FILES_RUN, SAMPLES_RUN = "files", "samples"
KEYS, BATCH, PER_STEP, ON_DISK, TIMES = 20, 20_000, 32, 6000, 5
BEGAN = 1_790_000_000 * 10**9
QUESTIONS = {each.path: each for each in ENDPOINTS}
WORDS = " ".join(f"word{at}" for at in range(60))


def fill_files(store: Store, home: Path, count: int) -> None:
    """Store the records of files under several keys; the newest of them, as a page shows them, are on disk."""
    writer = Writer(id="w1", run=FILES_RUN, project="p", wall_ns=BEGAN)
    blobs = blobs_of(layout.writer_folder(home, FILES_RUN, "r0-a1-host-1-abcdef0123456789"))
    for first in range(0, count, BATCH):
        records: list[Any] = []
        for at in range(first, min(first + BATCH, count)):
            data = f"file {at}".encode()
            digest = blobs.put(data)[0] if at >= count - ON_DISK else hashlib.sha256(data).hexdigest()
            attrs = {"key": f"key {at % KEYS}", "kind": "file", "sha256": digest, "size": len(data), "format": "txt"}
            place = (BEGAN + at * 10**6, at // KEYS, None, None, None, 9)
            records.append(Event(*place, EVENT_MEDIA, {**attrs, "name": f"{at}.txt"}))
        store.write(Batch(writer, first // BATCH + 1, records))


def fill_samples(store: Store, count: int) -> None:
    """Store rows of prompts, completions and rewards, so many in each step; each prompt comes back in later steps."""
    writer = Writer(id="w2", run=SAMPLES_RUN, project="p", wall_ns=BEGAN)
    for first in range(0, count, BATCH):
        records: list[Any] = []
        for at in range(first, min(first + BATCH, count)):
            cells = {"prompt": f"question {at % 1000}", "completion": f"answer {at} {WORDS}", "reward": at % 7 / 7}
            place = (BEGAN + at * 10**6, at // PER_STEP, None, None, None, 9)
            records.append(Log(*place, "samples", cells, SCOPE_SAMPLES))
        store.write(Batch(writer, first // BATCH + 1, records))


def asked(reader: Reader, path: str, run: object, **given: object) -> tuple[dict[str, float], Any]:
    """The median times of an answer in ms, on the clock and of the processor, and the answer; none is remembered."""
    endpoint = QUESTIONS[path]
    defaults = {each.name: each.default for each in endpoint.params}
    clock, spent = [], []
    for _ in range(TIMES):
        reader.engine._answers.clear()  # type: ignore[attr-defined]
        begun, before = time.perf_counter(), time.process_time()
        answer = endpoint.answer(reader, {**defaults, "run": run, **given})
        clock.append((time.perf_counter() - begun) * 1e3)
        spent.append((time.process_time() - before) * 1e3)
    return {"cpu_ms": round(median(spent), 1), "clock_ms": round(median(clock), 1)}, answer


def ask_files(reader: Reader) -> None:
    """Ask what the tab of files asks."""
    took, answer = asked(reader, "/api/runs/{run}/media", FILES_RUN)
    tell(f"media, the newest {sum(len(each['files']) for each in answer['media'])}", took)
    tell("media of one key", asked(reader, "/api/runs/{run}/media", FILES_RUN, key="key 7")[0])
    took, answer = asked(reader, "/api/runs/{run}/files", FILES_RUN, limit=200)
    tell(f"files, {len(answer['files'])} of {answer['total']}", took)
    name = answer["files"][0]["name"]
    tell("one file", asked(reader, "/api/runs/{run}/files/text", FILES_RUN, name=name)[0])


def ask_samples(reader: Reader, count: int) -> None:
    """Ask what the tab of samples asks."""
    path, last = "/api/runs/{run}/samples", (count - 1) // PER_STEP
    took, answer = asked(reader, path, SAMPLES_RUN)
    tell(f"samples of the last step, {len(answer['rows'])} rows, {len(answer['steps'])} steps", took)
    tell("samples of a step in the middle", asked(reader, path, SAMPLES_RUN, step=last // 2)[0])
    tell("the same prompts at another step", asked(reader, path, SAMPLES_RUN, step=last, other_step=last - 125)[0])
    took, found = asked(reader, path, SAMPLES_RUN, q=f"answer {count - 5} ")
    tell(f"a text, {len(found['rows'])} row, searched from step {found['searched_from']}", took)
    prompt = bytes.fromhex(answer["rows"][0]["prompt"])
    took, found = asked(reader, "/api/samples", [SAMPLES_RUN], prompt=prompt)
    tell(f"one prompt at all steps, {len(found['rows'])} rows", took)


def tell(what: str, took: dict[str, float]) -> None:
    """Print one figure."""
    print(json.dumps({"question": what, **took, "load": round(os.getloadavg()[0], 1)}), flush=True)


def main() -> None:
    """Fill a store, ask, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=1_000_000)
    args = parser.parse_args()
    with scratch() as folder:
        store = open_store(folder / "store")
        begun = time.process_time()
        fill_files(store, folder, args.files)
        fill_samples(store, args.samples)
        print(
            f"{args.files:,} files, {args.samples:,} samples stored in {time.process_time() - begun:.0f} s of CPU time"
        )
        states: Any = None  # nobody asks for them here
        reader = Reader(store.engine, states, files=[LoggedFiles(folder, folder / "uploads")])
        if args.files:
            ask_files(reader)
        if args.samples:
            ask_samples(reader, args.samples)
        store.close()


if __name__ == "__main__":
    main()
