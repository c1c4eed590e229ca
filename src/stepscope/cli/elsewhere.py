"""Runs that the hub of a home folder knows and its journals do not: those that came over the network."""

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from stepscope.cli import text
from stepscope.cli.asking import MOST, RUNS, find
from stepscope.cli.glance import Glance
from stepscope.hub.door import Refusing, open_door
from stepscope.hub.home import address_of


def others(home: Path, known: Collection[str]) -> list[Glance]:
    """The runs that only the hub knows, the latest first; none when no hub runs or it does not answer."""
    if address_of(home) is None:
        return []
    try:
        with open_door(home, timeout=5.0) as door:
            rows = door.get(RUNS, limit=MOST, sort="-started")["runs"]
    except Refusing as error:
        print(f"stepscope: {error}", file=sys.stderr)
        return []
    return [_glance(row) for row in rows if row["id"] not in known]


def _glance(row: dict[str, Any]) -> Glance:
    return Glance(
        run=row["id"],
        project=row["project"],
        name=row["name"],
        status=row["status"],
        attempts=row["attempts"],
        ranks=row["ranks"],
        last_step=row["step"],
        alerts=row["counts"].get("alerts", 0),
        started=_ns(row["started"]),
        ended=_ns(row["seen"]),
    )


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1e9)


def describe(home: Path, run: str) -> dict[str, Any] | None:
    """All about a run that only the hub knows; None when no hub runs."""
    if address_of(home) is None:
        return None
    with open_door(home) as door:
        id = find(door, home, run)
        return {**door.get(f"{RUNS}/{{run}}", run=id), **door.get(f"{RUNS}/{{run}}/keys", run=id)}


def report(run: dict[str, Any]) -> Iterator[str]:
    """The same for people."""
    name = f"{run['project']}/{run['name']}" if run["name"] else run["project"]
    yield text.clean(f"{run['id']}  {name}  {run['status']}")
    yield text.clean(
        f"started {text.moment(_ns(run['started']))}, lasted {text.lasted(run['duration'])}, "
        f"step {text.number(run['step'])}, ranks {run['ranks']}, attempts {run['attempts']}, "
        f"on {', '.join(run['hosts'])}"
    )
    yield from (text.clean(f"  {key} = {value}") for key, value in run["config"].items())
    rows = [
        [key["key"], str(key["points"]), *(_number(key[field]) for field in ("last", "min", "max"))]
        for key in run["keys"]
    ]
    if rows:
        yield ""
        yield from text.table(("METRIC", ">POINTS", ">LAST", ">MIN", ">MAX"), rows)


def _number(value: Any) -> str:
    return f"!{value}" if isinstance(value, str) else text.number(value)
