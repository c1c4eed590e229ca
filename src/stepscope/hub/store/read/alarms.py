"""The alerts of a run that tell of something wrong, counted by name, attempt and step."""

from msgspec import Struct

from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.runs import step_of
from stepscope.model.names import SEVERITIES

MOST = 20_000
"""Names and steps that are told apart; the worst and earliest where there are more."""


class AlarmRow(Struct, frozen=True):
    """Alerts of one name at one step of one attempt; the message is that of the worst, the first of them."""

    name: str
    attempt: int
    step: int | None
    count: int
    severity: int
    message: str
    time: int
    ranks: tuple[int, ...]


def read_alarms(engine: Engine, run: int) -> list[AlarmRow]:
    """The alerts of a run that are warnings or worse, the worst first."""
    found = engine.query(
        f"""SELECT name, attempt, step, count() AS n, max(severity) AS worst,
            argMax(body, (severity, -time)) AS message, min(time) AS first, arraySort(groupUniqArray(rank)) AS ranks
        FROM alerts WHERE run = {run} AND severity >= {SEVERITIES["WARN"]}
        GROUP BY name, attempt, step ORDER BY worst DESC, first, name LIMIT {MOST}"""
    )
    return [
        AlarmRow(name, attempt, step_of(step), count, worst, message, first, tuple(ranks))
        for name, attempt, step, count, worst, message, first, ranks in found.rows()
    ]
