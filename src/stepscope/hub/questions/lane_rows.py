"""Many spans without their attributes, column by column, for drawing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.hub.questions.spans import Stretch, condition
from stepscope.hub.store.columns import Answer
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.run_catalog import step_of

Array = npt.NDArray[Any]
_THREAD = """if(has(attr_names, 'thread.name'), attr_values[indexOf(attr_names, 'thread.name')],
    attr_values[indexOf(attr_names, 'thread.id')])"""
_SELECT = f"""run, rank, time, duration, step, status, name, lower(hex(trace_id)) AS trace, lower(hex(span_id)) AS id,
    if(parent_id = toFixedString('', 8), '', lower(hex(parent_id))) AS parent, {_THREAD} AS thread"""


@dataclass(frozen=True, slots=True)
class ThinSpans:
    """Spans in the order they began; an open one has the duration -1. Ids are hexadecimal, '' for no parent."""

    run: Array
    rank: Array
    time: Array
    duration: Array
    status: Array
    step: list[int | None]
    name: list[str]
    trace: list[str]
    id: list[str]
    parent: list[str]
    thread: list[str]

    def __len__(self) -> int:
        return len(self.id)


def read_thin(engine: Engine, stretch: Stretch, limit: int) -> ThinSpans:
    """The spans of a stretch, those still open among them."""
    where = condition(engine, stretch)
    ended, begun = engine.query_many(
        [
            f"SELECT {_SELECT} FROM {table} WHERE {where} ORDER BY time, id LIMIT {int(limit)}"
            for table in ("spans", "open_spans")
        ]
    )
    over = set(ended["id"])
    still_open = np.array([id not in over for id in begun["id"]], dtype=bool)
    return _joined(ended, begun, still_open)


def _joined(ended: Answer, begun: Answer, still_open: Array) -> ThinSpans:
    def numbers(name: str, dtype: str) -> Array:
        other = begun.array(name, dtype)[still_open]
        if name == "duration":
            other = np.full(len(other), -1, dtype)
        return np.concatenate([ended.array(name, dtype).astype(dtype), other.astype(dtype)])

    def texts(name: str) -> list[str]:
        return ended[name] + [text for text, keep in zip(begun[name], still_open, strict=True) if keep]

    return ThinSpans(
        run=numbers("run", "i8"),
        rank=numbers("rank", "i8"),
        time=numbers("time", "i8"),
        duration=numbers("duration", "i8"),
        status=numbers("status", "i8"),
        step=[step_of(step) for step in numbers("step", "i8").tolist()],
        **{name: texts(name) for name in ("name", "trace", "id", "parent", "thread")},
    )
