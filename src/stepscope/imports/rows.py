"""A row of named values, as most tools store them, made into a metric."""

from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.imports.source import Skip
from stepscope.model.records import Metric
from stepscope.wire.wandb_rows import split_row

_pack = msgspec.msgpack.Encoder().encode


def add_row(
    records: list[bytes], time: int, step: int | None, category: str | None, row: Mapping[str, Any], skip: Skip
) -> int:
    """Append a metric with the numbers of a row, nested ones under joined keys, and return how many they are."""
    values, others = split_row(row)
    for value in others.values():
        kind = value.get("_type") if isinstance(value, Mapping) else None
        skip("values that are not numbers" if kind is None else f"values of type {kind}", 1)
    if values:
        records.append(_pack(Metric(time, step, None, category, values)))
    return len(values)
