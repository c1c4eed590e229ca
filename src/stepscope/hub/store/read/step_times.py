"""How long a step took in earlier runs of a project that did the same work."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from stepscope.diagnosis.span_names import traits
from stepscope.hub.store import literal
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import list_runs
from stepscope.hub.store.read.run_row import RunRow

MAX_RUNS = 8
LOOKED_AT = 50
"""So many of the runs before it are looked at for those that are alike."""
MIN_STEPS = 50
"""A run with fewer steps says little."""
MAX_STEPS = 2000
"""So many of the first steps are read."""
_NOT_THE_WORK = re.compile(r"seed|lr|learning_rate|name|note|tag|path|dir|date|time|resume|id$", re.IGNORECASE)
"""Settings that do not change how much work a step is."""


def earlier_step_times(engine: Engine, row: RunRow) -> tuple[float, ...]:
    """Return the median step times in seconds of the latest runs before this one, of its project, size and settings."""
    mine = _work(row)
    others = (each for each in list_runs(engine, project=row.project) if each.started < row.started)
    before = [each.number for each in islice(others, LOOKED_AT) if each.number != row.number and _work(each) == mine]
    if not before:
        return ()
    found = engine.query(
        f"""SELECT run, name, count() AS steps, quantile(0.5)(duration) AS middle FROM spans
        WHERE run IN {literal.integers(before[:MAX_RUNS])} AND step < {MAX_STEPS} AND rank = 0
        AND parent_id = toFixedString('', 8)
        GROUP BY run, name"""
    )
    rows = found.rows("name", "steps", "middle")
    return tuple(middle / 1e9 for name, steps, middle in rows if steps >= MIN_STEPS and traits(name).step)


def _work(row: RunRow) -> tuple[object, ...]:
    """What decides how much work a step of a run is, as far as it is known."""
    return row.world_size, *sorted(_settings(row.beginning.get("config")))


def _settings(config: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(config, dict):
        for key, value in config.items():
            if not _NOT_THE_WORK.search(str(key)):
                yield from _settings(value, f"{name}.{key}")
    else:
        yield name, repr(config)
