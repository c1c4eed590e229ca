"""Hub ingest: how fast journals become stored records, and what a point and a span take on disk."""

from __future__ import annotations

from benchmarks.hub_process import HubError
from benchmarks.hub_world import filled
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError

NAME = "hub_ingest"
METHOD = (
    "Finished journals are moved into the home of a running hub, which shares the cores with nothing else: 11 M "
    "points one in a record, 4 M points of 8 ranks five in a record, 2.4 M spans of 8 ranks with an attribute "
    "each. Rate and time are from the first commit that is seen to the last. Bytes are those of the tables "
    "after compaction, with all that is kept to find the records; the values are noisy floats."
)


def measure(options: Options, progress: Progress) -> list[Result]:
    """Fill the world and report."""
    if OURS not in options.subjects:
        return []
    try:
        world = filled(options.quick, progress)
    except (HubError, ChildError, OSError) as error:
        progress(f"hub_ingest: SKIPPED: {error}")
        return [Result(NAME, "points, 1 in a record", OURS, skipped=str(error))]
    results = []
    for case, filling in world.fillings.items():
        each = world.weights["bytes_per_span" if case == "spans" else "bytes_per_point"]
        stats = {
            "per_s": filling.items / filling.seconds,
            "us_each": filling.seconds / filling.items * 1e6,
            "items": float(filling.items),
            "bytes_each": each,
        }
        results.append(Result(NAME, case, OURS, stats))
    return results
