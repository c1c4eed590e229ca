"""Exemplars as columns: single measurements behind a point, each with the span in which it was made."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from stepscope.hub.store import attrs
from stepscope.hub.store.columns import Block, Numbers, fixed, numbers
from stepscope.hub.store.exact import rests
from stepscope.hub.store.tables import NO_STEP
from stepscope.hub.store.write.catalog import Catalog, Source, label
from stepscope.model.records import Attrs, Metric
from stepscope.wire.otlp.names import ATTR_EXEMPLARS

MOST = 64
"""Of one point; the others are left out. OpenTelemetry's SDKs keep one for each bucket at most."""
_LATEST = 2**63


class _Exemplar(NamedTuple):
    value: int | float
    time: int
    trace_id: bytes | None
    span_id: bytes | None
    attrs: Attrs


class Exemplars:
    """The exemplars of a commit."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._rows: list[tuple[int, int, int, _Exemplar]] = []

    def add(self, source: Source, metric: Metric) -> None:
        """Take the exemplars of a point; what has not their shape is not one, and the point is kept without it."""
        found = list(_read(metric.attrs[ATTR_EXEMPLARS], metric.time))
        if not found:
            return
        slots = self._catalog.slots(
            source, metric.category, metric.values, metric.axis, label(metric.attrs), metric.instrument
        )
        step = NO_STEP if metric.step is None else metric.step
        for slot in slots:
            series = self._catalog.slot_series[slot]
            self._rows += [(series, step, source.writer.attempt, exemplar) for exemplar in found]

    def blocks(self, commit: int) -> dict[str, Block]:
        """Make the rows of `exemplars`."""
        if not self._rows:
            return {}
        series, steps, attempts, found = zip(*self._rows, strict=True)
        values = numbers("Float64", [each.value for each in found])
        block: Block = {
            "series": numbers("UInt64", series),
            "step": numbers("Int64", steps),
            "time": numbers("Int64", [each.time for each in found]),
            "attempt": numbers("UInt16", attempts),
            "value": values,
            "trace_id": fixed(16, [each.trace_id for each in found]),
            "span_id": fixed(8, [each.span_id for each in found]),
            **attrs.block([each.attrs for each in found]),
            "commit": numbers("UInt32", [commit] * len(found)),
        }
        if (rest := rests([each.value for each in found], values.data)) is not None:
            block["rest"] = Numbers("Int16", rest)
        return {"exemplars": block}


def _read(given: Any, time: int) -> Iterator[_Exemplar]:
    """Read what a receiver left in a record's attributes; one without a time has that of its point."""
    for each in given[:MOST] if isinstance(given, list) else ():
        if not isinstance(each, dict) or not isinstance(value := each.get("value"), (int, float)):
            continue
        at, said = each.get("time"), each.get("attrs")
        yield _Exemplar(
            value,
            at if type(at) is int and 0 < at < _LATEST else time,
            _id(each.get("trace_id"), 16),
            _id(each.get("span_id"), 8),
            {key: value for key, value in said.items() if isinstance(key, str)} if isinstance(said, dict) else {},
        )


def _id(text: Any, width: int) -> bytes | None:
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return None
    return found if len(found) == width else None
