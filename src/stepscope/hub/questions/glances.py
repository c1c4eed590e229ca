"""Endpoints of the table of runs: small pictures of many runs at once, and the names that a filter can use."""

from collections import Counter
from typing import Any

from stepscope.hub.questions import run_table as runs
from stepscope.hub.questions.endpoint import Endpoint, Reader
from stepscope.hub.questions.params import Param
from stepscope.hub.questions.runs import meant_names
from stepscope.hub.questions.schemas import INTEGER, TEXT, many, maybe, thing
from stepscope.hub.questions.sparks import metric_names, read_sparks
from stepscope.hub.store.run_catalog import list_runs

MOST_RUNS = 100
MOST_NAMES = 1000
NUMBER = {"type": "number"}


def sparks(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/sparks`."""
    rows = list_runs(reader.engine, ids=given["run"], project=reader.project)
    by_number = {row.number: row.id for row in rows}
    keys = dict.fromkeys(key for keys in meant_names(reader, given["metric"]).values() for key in keys)
    found = read_sparks(reader.engine, list(by_number), list(keys), given["points"])
    return {
        "sparks": [
            {"run": by_number[each.run], "key": each.key, "x": each.x, "min": each.low, "max": each.high}
            for each in found
        ]
    }


def fields(reader: Reader, given: dict[str, Any]) -> dict[str, Any]:
    """Answer `/api/fields`."""
    rows = reader.runs()
    metrics = metric_names(reader.engine, None if reader.project is None else [row.number for row in rows])
    config: dict[str, int] = {}
    for row in rows:
        for path in runs.paths(row.beginning.get("config")):
            config[path] = config.get(path, 0) + 1
    tags = Counter(name for row in rows for name in row.tags)
    return {
        "plain": list(runs.FIELDS),
        "metrics": [{"name": each.key, "runs": each.runs} for each in metrics],
        "config": [{"name": name, "runs": n} for name, n in _most(config)],
        "tags": [{"name": name, "runs": n} for name, n in _most(tags)],
        "projects": sorted({row.project for row in rows}),
        "home": None if reader.project is not None or reader.home is None else str(reader.home),
    }


def _most(amounts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(amounts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_NAMES]


_NAME = thing(name=TEXT, runs=INTEGER)

ENDPOINTS = (
    Endpoint(
        "/api/sparks",
        "readSparks",
        "One metric of each of many runs over its ranks, in a few buckets that keep every finite spike.",
        sparks,
        thing(sparks=many(thing(run=TEXT, key=TEXT, x=many(INTEGER), min=many(NUMBER), max=many(NUMBER)))),
        (
            Param("run", "text", "a run", required=True, many=MOST_RUNS),
            Param("metric", "text", "the metric; of several, the first that a run has", required=True, many=10),
            Param("points", "integer", "so many buckets at most", default=40, low=1, high=200),
        ),
    ),
    Endpoint(
        "/api/fields",
        "listFields",
        "What runs can be picked, sorted and grouped by, and the folder that the hub reads.",
        fields,
        thing(
            plain=many(TEXT),
            metrics=many(_NAME),
            config=many(_NAME),
            tags=many(_NAME),
            projects=many(TEXT),
            home=maybe(TEXT),
        ),
    ),
)
