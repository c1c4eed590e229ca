"""The flusher's side of held tensors: read many at once, one transfer on a side stream, nobody waits."""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stepscope.model.records import Instrument
from stepscope.sdk import cuda
from stepscope.sdk.scalars import Refused, plain
from stepscope.sdk.tensors import Held

Refuse = Callable[[str, str], None]
_NO_ATTRS: dict[str, Any] = {}


class Row(NamedTuple):
    """A `log` call with at least one held value."""

    time: int
    step: int | None
    axis: str | None
    category: str | None
    values: dict[str, Any]
    attrs: Mapping[str, Any] = _NO_ATTRS
    instrument: Instrument | None = None


class Transfer:
    """The held values of some rows on their way to the host."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._held = [each for row in rows for each in row.values.values() if type(each) is Held]
        self._arrivals: list[tuple[list[Any], Any, Any]] = []
        self._numbers: dict[int, list[Any] | Exception] = {}
        """The numbers of a tensor, by its identity, or why it cannot be read."""
        groups: defaultdict[Any, dict[int, Held]] = defaultdict(dict)
        for each in self._held:
            if each.library == "torch":
                groups[each.value.device, each.value.dtype][id(each.value)] = each
        for group in groups.values():
            try:
                self._arrivals.append(_send(list(group.values())))
            except Exception as error:  # such as a tensor without memory
                self._numbers.update(dict.fromkeys(group, error))

    def ready(self) -> bool:
        """Tell whether every value has arrived."""
        arrived = all(event is None or event.query() for _, _, event in self._arrivals)
        return arrived and all(_is_computed(each) for each in self._held if each.library == "jax")

    def finish(self, refuse: Refuse) -> list[Row]:
        """Put the numbers in place of the held values; what can not be read is passed to `refuse`."""
        for frozen, host, _ in self._arrivals:
            start, arrived = 0, host.tolist()
            for tensor in frozen:
                self._numbers[id(tensor)] = arrived[start : start + tensor.numel()]
                start += tensor.numel()
        for row in self.rows:
            for key, value in list(row.values.items()):
                if type(value) is Held:
                    self._settle(row.values, key, value, refuse)
        return [row for row in self.rows if row.values]

    def _settle(self, values: dict[str, Any], key: str, held: Held, refuse: Refuse) -> None:
        """Read one value that has arrived."""
        try:
            values[key] = plain(self._item(held))
        except Refused as reason:
            del values[key]
            refuse(key, str(reason))
        except Exception as error:
            del values[key]
            refuse(key, f"unreadable {type(error).__name__}")

    def _item(self, held: Held) -> Any:
        if held.library != "torch":
            return held.value.item() if held.library == "jax" else held.value.numpy().item()
        numbers = self._numbers[id(held.value)]
        if isinstance(numbers, Exception):
            raise numbers
        return numbers[held.index]


def _send(held: list[Held]) -> tuple[list[Any], Any, Any]:
    """Start the journey of frozen tensors of one device and type: the tensors, where they arrive, and when."""
    frozen = [each.value for each in held]
    parts = [tensor.reshape(-1) for tensor in frozen]
    if frozen[0].is_cuda:
        return frozen, *cuda.fetch(parts, {each.event for each in held})
    return frozen, sys.modules["torch"].cat(parts).cpu(), None


def _is_computed(held: Held) -> bool:
    return bool(held.value.is_deleted()) or bool(held.value.is_ready())
