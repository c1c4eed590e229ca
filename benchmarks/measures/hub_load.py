"""Hub load: the OpenTelemetry Collector's testbed load over HTTP and gRPC, and whether every item is in the store."""

from __future__ import annotations

from benchmarks.hub_process import HubError, HubProcess
from benchmarks.results import OURS, Options, Progress, Result
from benchmarks.spawn import ChildError, fresh, scratch

NAME = "hub_load"
METHOD = (
    "10,000 spans a second, then points, then log records, in requests of 100, for 15 s each, over gRPC and "
    "over HTTP with protobuf: a client of four connections in its own process, no two requests alike, on "
    "the cores that the hub runs on too. `lost` is what was sent and is not in the store, counted there; `late` "
    "is how much longer than 15 s the sending took; answers come after the fsync."
)
RATE, BATCH = 10_000, 100
ITEMS = {"traces": ("spans", "spans"), "metrics": ("points", "metrics"), "logs": ("log records", "logs")}
ALL = "all together"


def measure(options: Options, progress: Progress) -> list[Result]:
    """Load a fresh hub, one signal after another."""
    if OURS not in options.subjects:
        return []
    seconds = 3 if options.quick else 15
    results: list[Result] = []
    with scratch() as folder:
        try:
            hub = HubProcess(folder)
            try:
                for protocol in ("grpc", "http"):
                    for signal in ITEMS:
                        progress(f"hub_load: {signal} over {protocol}")
                        results.append(_one(hub, protocol, signal, seconds))
                hub.stop()
            finally:
                hub.close()
        except (HubError, ChildError, OSError) as error:
            progress(f"hub_load: SKIPPED: {error}")
            return [*results, Result(NAME, ALL, OURS, skipped=str(error))]
    return [*results, Result(NAME, ALL, OURS, _together(results))]


def _one(hub: HubProcess, protocol: str, signal: str, seconds: float) -> Result:
    noun, table = ITEMS[signal]
    run = f"load-{protocol}-{signal}"
    port = hub.port if protocol == "http" else hub.grpc_port
    params = {"protocol": protocol, "signal": signal, "port": port, "run": run}
    before, stored = hub.cpu_s(), hub.stored(f"otlp_{protocol}")
    client = fresh("benchmarks.hub_client", params | {"rate": RATE, "batch": BATCH, "seconds": seconds})
    hub.wait_stored(f"otlp_{protocol}", stored + int(client["acknowledged"]), 60)
    stats = {
        "per_s": client["sent"] / client["seconds"],
        "sent": client["sent"],
        "lost": client["sent"] - count(hub, run, table),
        "late_s": max(client["seconds"] - seconds, 0.0),
        "p50_ms": client["p50_ms"],
        "p99_ms": client["p99_ms"],
        "cpu_percent": (hub.cpu_s() - before) / client["seconds"] * 100,
    }
    return Result(NAME, f"{noun}, {'gRPC' if protocol == 'grpc' else 'HTTP'}", OURS, stats)


def count(hub: HubProcess, run: str, table: str) -> int:
    """How many rows of a table belong to a run."""
    number = f"(SELECT max(run) FROM runs WHERE id = '{run}')"
    if table == "metrics":
        return int(hub.sql(f"SELECT count() FROM metrics WHERE bitShiftRight(series, 32) = {number}"))
    return int(hub.sql(f"SELECT count() FROM {table} WHERE run = {number}"))


def _together(results: list[Result]) -> dict[str, float]:
    rows = [result.stats for result in results]
    return {
        "sent": sum(row["sent"] for row in rows),
        "lost": sum(abs(row["lost"]) for row in rows),
        "late_s": max(row["late_s"] for row in rows),
    }
