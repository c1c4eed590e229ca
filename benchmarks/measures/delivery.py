"""Delivery: how fast a shipper moves a backlog to a hub and to an OTLP server, and what that costs both."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.destinations import destination
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, end_group, environment, fresh, scratch
from stepscope.journal.segments import Journal
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Span
from stepscope.sdk.shipping.shipper_process import Shipping, ship
from stepscope.sinks import registry

NAME = "delivery"
METHOD = (
    "A journal as a trainer leaves it, batches of 1,000 records, is delivered by a shipper in its own process: "
    "to a real hub (a million points, in rows of ten values, and in rows of one value, which cost most), and as spans "
    "with five attributes to a server that takes every OTLP request. Delivered means acknowledged, by the hub when it "
    "is on its disk; `stored` is the rate at which it can be asked for. Processor time is that of the shipper, and of "
    "the hub until all is stored. The fastest round of all."
)
PER_BATCH = 1000
CASES = {
    "hub, rows of 10 values": ("hub", 100_000, 10),
    "hub, rows of 1 value": ("hub", 1_000_000, 1),
    "otlp, spans": ("otlp", 100_000, 1),
}
START = 1_790_000_000_000_000_000
_HUB_LINE = re.compile(r"stepscope hub: (https?://[^ ]+) ")


def measure(options: Options, progress: Progress) -> list[Result]:
    """Deliver each backlog several times over."""
    rounds = 1 if options.quick else 3
    results = []
    for case, (kind, rows, width) in CASES.items():
        if options.quick:
            rows //= 5
        taken: list[dict[str, float]] = []
        trouble = ""
        for number in range(rounds):
            progress(f"delivery: {case} (round {number + 1} of {rounds})")
            try:
                taken.append(_once(kind, rows, width))
            except (ChildError, OSError, AssertionError) as error:
                trouble = str(error)
                progress(f"delivery: {case} FAILED: {error}")
        if taken:
            results.append(Result(NAME, case, OURS, min(taken, key=lambda row: row["us_each"])))
        else:
            results.append(Result(NAME, case, OURS, skipped=trouble))
    return results


def _once(kind: str, rows: int, width: int) -> dict[str, float]:
    params = {"kind": kind, "rows": rows, "width": width}
    with scratch() as folder:
        if kind == "hub":
            with _hub(folder) as (url, pid):
                before = _cpu_s(pid)
                found: dict[str, float] = fresh(__name__, {**params, "url": url})
                found |= _stored(url, rows, found["began"], rows * width)
                found["peer_cpu_us"] = (_cpu_s(pid) - before) / (rows * width) * 1e6
        else:
            with destination("takes", folder) as url:
                found = fresh(__name__, {**params, "url": url})
    del found["began"]
    return found


def child(params: dict[str, Any]) -> dict[str, float]:
    """Write a journal, deliver it, and return what that took."""
    home = Path(os.getcwd()) / "stepscope"
    total = params["rows"] * params["width"]
    _write(home, params["kind"], params["rows"], params["width"])
    address = {"hub": "url", "otlp": "endpoint"}[params["kind"]]
    (sink,) = registry.parse([{params["kind"]: {address: params["url"]}}], {})
    shipping = Shipping(home, None, [sink])
    began, used = time.time(), time.process_time()
    assert ship(shipping, wait=False, seconds=120), [report.problem for report in shipping.reports()]
    took, used = time.time() - began, time.process_time() - used
    (report,) = shipping.reports()
    assert {name: count for name, count in report.counts.items() if count} == {"written": params["rows"]}, report.counts
    shipping.stop(5)
    return {
        "per_s": total / took,
        "us_each": took / total * 1e6,
        "shipper_cpu_us": used / total * 1e6,
        "began": began,
    }


def _write(home: Path, kind: str, rows: int, width: int) -> None:
    name = "r0-a1-host-1-abcdef"
    journal = Journal(home / "runs" / "bench" / name, Writer(id=name, run="bench", project="bench", wall_ns=START))
    encode = msgspec.msgpack.Encoder().encode
    attrs = {"batch_size": 32, "tokens": 4096, "lr": 3e-4, "phase": "train", "cached": True}
    for first in range(0, rows, PER_BATCH):
        numbers = range(first, min(first + PER_BATCH, rows))
        if kind == "hub":
            records = [
                encode(Metric(START + n * 10**6, n, None, "trainer", {f"key_{k}": n + k / 10 for k in range(width)}))
                for n in numbers
            ]
        else:
            records = [
                encode(Span(START + n, 10**6, n, None, n.to_bytes(16), n.to_bytes(8), None, "step", attrs=attrs))
                for n in range(numbers.start + 1, numbers.stop + 1)
            ]
        journal.append(records)
    journal.close()


@contextlib.contextmanager
def _hub(folder: Path) -> Iterator[tuple[str, int]]:
    line = [sys.executable, "-m", "stepscope", "hub", "--home", str(folder / "hub")]
    process = subprocess.Popen(
        [*line, "--port", "0", "--grpc-port", "0"],
        env=environment(folder),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        found = _HUB_LINE.match(process.stdout.readline())
        if found is None:
            raise ChildError("the hub did not start")
        yield found[1], process.pid
    finally:
        process.stdout.close()
        end_group(process)


def _stored(url: str, rows: int, began: float, points: int, limit_s: float = 120.0) -> dict[str, float]:
    """Wait until the hub has stored everything; how fast that was."""
    deadline = time.time() + limit_s
    while time.time() < deadline:
        with urllib.request.urlopen(f"{url}/api/health", timeout=10) as answer:
            receivers = json.load(answer)["receivers"]
        if receivers.get("native", {}).get("stored", 0) >= rows:
            return {"stored_per_s": points / (time.time() - began)}
        time.sleep(0.02)
    raise ChildError(f"not stored within {limit_s:.0f} s")


def _cpu_s(pid: int) -> float:
    import psutil

    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
