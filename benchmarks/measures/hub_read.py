"""Hub reads: long series with a spike, a table of runs and the step inspector at the HTTP API, and peers' series."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

from benchmarks.hub_journals import SPIKE
from benchmarks.hub_process import HubError, HubProcess
from benchmarks.hub_store import WIDE_STEPS
from benchmarks.hub_world import World, filled
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, fresh
from benchmarks.timing import asked

NAME = "hub_read"
METHOD = (
    "Answers of a hub over HTTP on one connection, from request to the last byte, best of 11, in a store of 15 "
    "M points, 2.4 M spans and 5,000 runs: `series` with 1,000 points wanted, from another step on each time; the "
    "first 100 runs that `status = finished` picks, with a metric; a step in the middle of a run of 8 ranks and 100 "
    "k steps; the first 16 ranks of a step of 1,024, as the page asks for it, another step each time. Peers get the "
    "same million points straight into their SQLite files and are asked as their own pages ask: MLflow's server "
    "for 320 points of `get-history-bulk-interval`, trackio's `get_logs` in process. One value is 1e6; where it "
    "is not in the answer, the spike is lost."
)
LONG = "1 M points"
QUESTIONS = (
    (LONG, "/api/runs/one/series?key=trainer/loss&from={turn}"),
    ("10 M points", "/api/runs/ten/series?key=trainer/loss&from={turn}"),
    ("5,000 runs", "/api/runs?limit=100&metric=loss&filter=status%3Dfinished"),
    ("a step of 8 ranks", "/api/runs/big/steps/{middle}"),
    ("a step of 1,024 ranks", "/api/runs/wide/steps/{turn}?limit=16"),
)
PEERS = {"mlflow": "benchmarks.hub_peers_mlflow", "trackio": "benchmarks.hub_peers_trackio"}


def measure(options: Options, progress: Progress) -> list[Result]:
    """Ask the hub, then the peers that are wanted."""
    results = []
    if OURS in options.subjects:
        try:
            results += _ours(filled(options.quick, progress), 5 if options.quick else 11, progress)
        except (HubError, ChildError, OSError) as error:
            progress(f"hub_read: SKIPPED: {error}")
            results.append(Result(NAME, LONG, OURS, skipped=str(error)))
    for peer, module in PEERS.items():
        if peer in options.subjects:
            progress(f"hub_read: {peer}")
            params = {"points": 50_000 if options.quick else 10**6, "rounds": 3, "spike": SPIKE}
            try:
                results.append(Result(NAME, LONG, peer, fresh(module, params)))
            except ChildError as error:
                progress(f"hub_read: {peer} SKIPPED: {error}")
                results.append(Result(NAME, LONG, peer, skipped=str(error)))
    return results


def _ours(world: World, rounds: int, progress: Progress) -> list[Result]:
    hub = HubProcess(world.folder)
    try:
        hub.wait_until_idle(30)
        results = []
        for case, path in QUESTIONS:
            progress(f"hub_read: {case}")
            turns = count(WIDE_STEPS - rounds)
            ask = partial(_ask, hub, path, world.steps() // 2, turns)
            stats, answer = asked(rounds, ask)
            results.append(Result(NAME, case, OURS, stats | _facts(answer)))
        hub.stop()
        return results
    finally:
        hub.close()


def _ask(hub: HubProcess, path: str, middle: int, turns: Iterator[int]) -> Any:
    return hub.get(path.format(middle=middle, turn=next(turns)))


def _facts(answer: Any) -> dict[str, float]:
    if "series" in answer:
        (line,) = answer["series"]
        return {
            "of": float(line["total"]),
            "shown": float(line["shown"]),
            "spikes_lost": float(SPIKE not in line["columns"]["max"]),
        }
    if "runs" in answer:
        return {"of": float(answer["total"]), "shown": float(len(answer["runs"]))}
    spans = [span for rank in answer["ranks"] for span in rank["spans"]]
    if not spans or not answer["metrics"]:
        raise HubError("the step has no spans or no metrics")
    return {"of": float(answer["all_ranks"]["count"]), "shown": float(len(spans)), "kB": len(json.dumps(answer)) / 1e3}
