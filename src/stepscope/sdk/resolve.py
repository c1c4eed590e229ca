"""The flusher's side of held tensors: read many at once, one transfer on a side stream, nobody waits."""

import sys
from collections import defaultdict
from typing import Any, NamedTuple

from stepscope.sdk.scalars import Refused, plain
from stepscope.sdk.tensors import Held, version

CHANGED = "changed in place"


class Row(NamedTuple):
    """A `log` call with at least one held value."""

    time: int
    step: int | None
    axis: str | None
    category: str | None
    values: dict[str, Any]


class Transfer:
    """The torch values of some rows on their way to the host."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._parts: list[tuple[list[tuple[Row, str, Held]], Any, Any]] = []
        groups: dict[Any, list[tuple[Row, str, Held]]] = defaultdict(list)
        for row in rows:
            for key, value in row.values.items():
                if type(value) is Held and value.library == "torch":
                    groups[value.value.device, value.value.dtype].append((row, key, value))
        for (device, _), group in groups.items():
            self._parts.append((group, *_copy(device, group)))

    def ready(self) -> bool:
        """Tell whether every value has arrived."""
        return all(event is None or event.query() for _, _, event in self._parts) and all(
            _jax_ready(value) for row in self.rows for value in row.values.values() if type(value) is Held
        )

    def finish(self, refuse: Any) -> list[Row]:
        """Put the numbers in place of the held values; what cannot be trusted is passed to `refuse`."""
        for group, host, _ in self._parts:
            for (row, key, held), number in zip(group, host.tolist(), strict=True):
                if version(held.value) != held.version:
                    del row.values[key]
                    refuse(key, CHANGED)
                else:
                    row.values[key] = plain(number)
        for row in self.rows:
            for key, value in list(row.values.items()):
                if type(value) is Held:
                    _finish_other(row, key, value, refuse)
        return [row for row in self.rows if row.values]


def _copy(device: Any, group: list[tuple[Row, str, Held]]) -> tuple[Any, Any]:
    """Queue one gathering kernel and one copy on a side stream; return the host tensor and its event."""
    torch = sys.modules["torch"]
    tensors = [held.value.reshape(()) for _, _, held in group]
    if device.type != "cuda":
        return torch.stack(tensors).cpu(), None
    side = _side_stream(torch, device)
    for stream in {held.stream for _, _, held in group}:
        side.wait_stream(torch.cuda.Stream(stream_id=stream[0], device_index=stream[1], device_type=stream[2]))
    with torch.cuda.stream(side):
        stacked = torch.stack(tensors)
        host = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=True)
        host.copy_(stacked, non_blocking=True)
        event = torch.cuda.Event()
        event.record(side)
    return host, event


_streams: dict[int, Any] = {}


def _side_stream(torch: Any, device: Any) -> Any:
    if device.index not in _streams:
        _streams[device.index] = torch.cuda.Stream(device=device)
    return _streams[device.index]


def _jax_ready(held: Held) -> bool:
    return held.library != "jax" or bool(held.value.is_deleted()) or bool(held.value.is_ready())


def _finish_other(row: Row, key: str, held: Held, refuse: Any) -> None:
    try:
        item = held.value.item() if held.library == "jax" else held.value.numpy().item()
        row.values[key] = plain(item)
    except Refused as reason:
        del row.values[key]
        refuse(key, str(reason))
    except Exception as error:
        del row.values[key]
        refuse(key, f"unreadable {type(error).__name__}")
