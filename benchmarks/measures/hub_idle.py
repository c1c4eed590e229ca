"""Hub idle: what a hub with much in its store takes of a core, and of memory, while nothing happens."""

from __future__ import annotations

import time

from benchmarks.hub_process import HubError, HubProcess
from benchmarks.hub_world import filled
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError

NAME = "hub_idle"
METHOD = (
    "A hub with 15 M points, 2.4 M spans and 5,000 runs in its store and 18 journals in its folder, left alone "
    "until it has come to rest, then for 30 s: processor time of all its threads, and its resident memory at "
    "the end."
)


def measure(options: Options, progress: Progress) -> list[Result]:
    """Leave a hub alone."""
    if OURS not in options.subjects:
        return []
    seconds = 5 if options.quick else 30
    try:
        world = filled(options.quick, progress)
        progress("hub_idle: leaving the hub alone")
        begun = time.monotonic()
        hub = HubProcess(world.folder)
        ready_s = time.monotonic() - begun
        try:
            hub.wait_until_idle(60)
            before, begun = hub.cpu_s(), time.monotonic()
            time.sleep(seconds)
            share = (hub.cpu_s() - before) / (time.monotonic() - begun)
            stats = {"cpu_percent": share * 100, "rss_mb": hub.rss_bytes() / 1e6, "ready_s": ready_s}
            hub.stop()
        finally:
            hub.close()
    except (HubError, ChildError, OSError) as error:
        progress(f"hub_idle: SKIPPED: {error}")
        return [Result(NAME, "nothing happens", OURS, skipped=str(error))]
    return [Result(NAME, "nothing happens", OURS, stats)]
