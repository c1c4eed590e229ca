"""The flusher's side of held tensors: read many at once, one transfer on a side stream, nobody waits."""

import sys
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from stepscope.sdk.scalars import Refused, plain
from stepscope.sdk.tensors import Held

Refuse = Callable[[str, str], None]


class Row(NamedTuple):
    """A `log` call with at least one held value."""

    time: int
    step: int | None
    axis: str | None
    category: str | None
    values: dict[str, Any]


class Transfer:
    """The held values of some rows on their way to the host."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._held = [each for row in rows for each in row.values.values() if type(each) is Held]
        self._arrivals: list[tuple[list[Any], Any, Any]] = []
        groups: defaultdict[Any, dict[int, Held]] = defaultdict(dict)
        for each in self._held:
            if each.library == "torch":
                groups[each.value.device, each.value.dtype][id(each.value)] = each
        for (device, _), frozen in groups.items():
            self._arrivals.append(_send(device, list(frozen.values())))

    def ready(self) -> bool:
        """Tell whether every value has arrived."""
        arrived = all(event is None or event.query() for _, _, event in self._arrivals)
        return arrived and all(_is_computed(each) for each in self._held if each.library == "jax")

    def finish(self, refuse: Refuse) -> list[Row]:
        """Put the numbers in place of the held values; what can not be read is passed to `refuse`."""
        numbers: dict[int, list[Any]] = {}
        for frozen, host, _ in self._arrivals:
            start, arrived = 0, host.tolist()
            for tensor in frozen:
                numbers[id(tensor)] = arrived[start : start + tensor.numel()]
                start += tensor.numel()
        for row in self.rows:
            for key, value in list(row.values.items()):
                if type(value) is Held:
                    _settle(row.values, key, value, numbers, refuse)
        return [row for row in self.rows if row.values]


def _send(device: Any, held: list[Held]) -> tuple[list[Any], Any, Any]:
    """Queue one gathering kernel and one copy on a side stream: the tensors, where they arrive, and when."""
    torch = sys.modules["torch"]
    frozen = [each.value for each in held]
    parts = [tensor.reshape(-1) for tensor in frozen]
    if device.type != "cuda":
        return frozen, torch.cat(parts).cpu(), None
    side = _side_stream(torch, device)
    for stream in {each.stream for each in held}:
        side.wait_stream(torch.cuda.Stream(stream_id=stream[0], device_index=stream[1], device_type=stream[2]))
    with torch.cuda.stream(side):
        gathered = torch.cat(parts)
        host = torch.empty(gathered.shape, dtype=gathered.dtype, pin_memory=True)
        host.copy_(gathered, non_blocking=True)
        event = torch.cuda.Event()
        event.record(side)
    return frozen, host, event


_streams: dict[int, Any] = {}


def _side_stream(torch: Any, device: Any) -> Any:
    if device.index not in _streams:
        _streams[device.index] = torch.cuda.Stream(device=device)
    return _streams[device.index]


def _is_computed(held: Held) -> bool:
    return bool(held.value.is_deleted()) or bool(held.value.is_ready())


def _settle(values: dict[str, Any], key: str, held: Held, numbers: dict[int, list[Any]], refuse: Refuse) -> None:
    """Read one value that has arrived."""
    try:
        if held.library == "torch":
            item = numbers[id(held.value)][held.index]
        else:
            item = held.value.item() if held.library == "jax" else held.value.numpy().item()
        values[key] = plain(item)
    except Refused as reason:
        del values[key]
        refuse(key, str(reason))
    except Exception as error:
        del values[key]
        refuse(key, f"unreadable {type(error).__name__}")
