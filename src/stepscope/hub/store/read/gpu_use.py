"""What runs used of their GPUs, from the sums that the probes of their processes recorded."""

from collections.abc import Collection, Iterator
from typing import Any

from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.reductions import Reduced

_FEW = 500
"""The catalog of more runs than this is read by key alone."""
_MAX_SERIES = 4000
"""The most series in one statement, whose length is limited."""
_PREFIX = "system/gpu/"
_COVERED = 0.9
"""Energy and utilization are unknown where less than this share of the GPU hours has them."""
_SOURCES = {"gpu_hours": "run_seconds", "gpu_kwh": "energy_joules", "gpu_utilization": "busy_seconds"}
_JOULES_PER_KWH = 3.6e6
_Place = tuple[str, str, int]
"""A GPU of a host in an attempt. Two processes that share a GPU have it once."""


def gpu_use(engine: Engine, runs: Collection[int], field: str) -> dict[int, Reduced]:
    """One of `GPU_FIELDS` of some runs, by run; a run is missing where it is not known.

    A GPU counts from the start of an attempt to the last reading in it, also while it is idle.
    """
    kinds = {_SOURCES["gpu_hours"], _SOURCES[field]}
    sums = _sums(engine, runs, kinds)
    found: dict[int, Reduced] = {}
    for run, by_kind in sums.items():
        seconds = by_kind.get(_SOURCES["gpu_hours"], {})
        value = _value(field, seconds, by_kind.get(_SOURCES[field], {}))
        if value is not None:
            found[run] = Reduced(field, value, None)
    return found


def _value(field: str, seconds: dict[_Place, float], of: dict[_Place, float]) -> float | None:
    total = sum(seconds.values())
    known = sum(amount for place, amount in seconds.items() if place in of)
    if not total or known < _COVERED * total:
        return None
    used = sum(of[place] for place in seconds if place in of)
    if field == "gpu_utilization":
        return min(used / known, 1.0)
    return used / 3600 if field == "gpu_hours" else used / _JOULES_PER_KWH


def _sums(engine: Engine, runs: Collection[int], kinds: Collection[str]) -> dict[int, dict[str, dict[_Place, float]]]:
    """The highest sum of each kind, by run, kind and GPU: they only grow within an attempt."""
    among = f" AND run IN {literal.integers(runs)}" if len(runs) <= _FEW else ""
    ends = " OR ".join(f"key LIKE '{_PREFIX}%/{kind}'" for kind in sorted(kinds))
    catalog = engine.query(f"SELECT run, series, key, rank FROM series WHERE ({ends}){among}")
    wanted = set(runs)
    series = {
        number: (run, key, rank)
        for run, number, key, rank in catalog.rows("run", "series", "key", "rank")
        if run in wanted
    }
    if not series:
        return {}
    hosts = _hosts(engine, {run for run, _, _ in series.values()})
    found: dict[int, dict[str, dict[_Place, float]]] = {}
    for number, attempt, most in _highest(engine, list(series)):
        run, key, rank = series[number]
        gpu, _, kind = key.removeprefix(_PREFIX).rpartition("/")
        place = hosts.get((run, rank, attempt), ""), gpu, attempt
        of_kind = found.setdefault(run, {}).setdefault(kind, {})
        of_kind[place] = max(of_kind.get(place, 0.0), most)
    return found


def _highest(engine: Engine, series: list[int]) -> Iterator[tuple[Any, ...]]:
    for at in range(0, len(series), _MAX_SERIES):
        part = literal.integers(series[at : at + _MAX_SERIES])
        rows = engine.query(
            f"""SELECT series, attempt, maxMerge(high) AS most FROM totals WHERE series IN {part}
            GROUP BY series, attempt"""
        )
        yield from rows.rows("series", "attempt", "most")


def _hosts(engine: Engine, runs: Collection[int]) -> dict[tuple[int, int, int], str]:
    """The host of each rank and attempt."""
    among = f"run IN {literal.integers(runs)}" if len(runs) <= _FEW else "1"
    rows = engine.query(
        f"SELECT run, rank, attempt, any(host) AS host FROM writers WHERE {among} GROUP BY run, rank, attempt"
    )
    return {(run, rank, attempt): host for run, rank, attempt, host in rows.rows("run", "rank", "attempt", "host")}
