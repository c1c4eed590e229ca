"""Bodies of `runs/log-batch` within its limits: 1000 metrics, 100 params, 100 tags, a megabyte."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stepscope.wire.mlflow import names
from stepscope.wire.mlflow.points import Point

_encode = msgspec.json.Encoder().encode


class LogBatch(NamedTuple):
    """A body, and the indices of the records it is made of."""

    body: bytes
    where: Sequence[int]


def metric_batches(run: str, found: Sequence[tuple[int, Point]], most_bytes: int = names.MOST_BYTES) -> list[LogBatch]:
    """Write points, each with the index of its record, as few bodies as the limits allow."""
    made: list[LogBatch] = []
    for start in range(0, len(found), names.MOST_METRICS):
        made += _split(run, found[start : start + names.MOST_METRICS], most_bytes)
    return made


def _split(run: str, found: Sequence[tuple[int, Point]], most_bytes: int) -> Iterator[LogBatch]:
    body = _encode({"run_id": run, "metrics": [point for _, point in found]})
    if len(body) > most_bytes and len(found) > 1:
        middle = len(found) // 2
        yield from _split(run, found[:middle], most_bytes)
        yield from _split(run, found[middle:], most_bytes)
        return
    yield LogBatch(body, sorted({index for index, _ in found}))


def pair_batches(run: str, kind: str, found: Mapping[str, str]) -> list[bytes]:
    """Write params or tags (`kind`), a hundred at most in each body, and no body too long."""
    pairs = [{"key": key, "value": value} for key, value in found.items()]
    made, start = [], 0
    while start < len(pairs):
        size = min(names.MOST_PARAMS, len(pairs) - start)
        while len(body := _encode({"run_id": run, kind: pairs[start : start + size]})) > names.MOST_BYTES and size > 1:
            size //= 2
        made.append(body)
        start += size
    return made
