"""Events that say something of a run as a whole, by their names: requests to it, its checkpoints and artifacts."""

from collections.abc import Sequence

from msgspec import Struct

from stepscope.hub.store import attrs, literal
from stepscope.hub.store.engine import Engine
from stepscope.model.records import Attrs


class LifeEvent(Struct, frozen=True):
    """What a process recorded, and its rank and attempt."""

    rank: int
    attempt: int
    time: int
    name: str
    attrs: Attrs

    @property
    def step(self) -> int | None:
        """The step that it names."""
        return self.integer("step")

    def integer(self, name: str) -> int | None:
        """The attribute of a name, if that is an integer."""
        found = self.attrs.get(name)
        return found if type(found) is int else None

    def text(self, name: str) -> str:
        """The attribute of a name as text; empty without it."""
        return str(self.attrs.get(name, ""))


def read_life_events(engine: Engine, run: int, names: Sequence[str], limit: int) -> list[LifeEvent]:
    """Return the newest events of some names, the newest first, those of one time by rank."""
    return [event for _, event in _read(engine, f"run = {run} AND name IN {literal.texts(names)}", limit)]


def read_life_events_of_all(engine: Engine, names: Sequence[str], limit: int) -> list[tuple[int, LifeEvent]]:
    """Return the newest events of some names of all runs, each with the number of its run, the newest first."""
    return _read(engine, f"name IN {literal.texts(names)}", limit)


def _read(engine: Engine, condition: str, limit: int) -> list[tuple[int, LifeEvent]]:
    columns = ("run", "rank", "attempt", "time", "name", "attr_names", "attr_values", "attr_types")
    found = engine.query(
        f"""SELECT {", ".join(columns)} FROM lifecycle WHERE {condition} ORDER BY time DESC, rank, run LIMIT {limit}"""
    )
    return [
        (run, LifeEvent(rank, n, time, name, attrs.restore(*rest)))
        for run, rank, n, time, name, *rest in found.rows(*columns)
    ]
