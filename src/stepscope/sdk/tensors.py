"""Scalars of torch, jax and tensorflow: device values are copied without waiting, and read later by the flusher."""

import contextlib
import operator
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stepscope.model.records import FIRST_STEP, LAST_STEP, Instrument
from stepscope.sdk.interrupts import pass_on

Number = int | float


class Refused(Exception):
    """A value is not a number; the message is the reason it is counted under."""


def step_number(step: Any) -> int:
    """Return an integer that every store takes as a step, or raise Refused."""
    try:
        number = operator.index(step)
    except BaseException as raised:  # TypeError, or whatever a foreign object raises when it is asked
        pass_on(raised)
        raise Refused(f"step must be an integer, got {type(step).__name__}") from None
    if not FIRST_STEP <= number <= LAST_STEP:
        raise Refused("step is out of range")
    return number


def plain(item: Any) -> Number:
    """Check the result of a library's `item()`."""
    if type(item) is float or type(item) is int:
        return item
    if type(item) is bool:
        return int(item)
    if isinstance(item, (str, bytes, complex)) or item is None or not hasattr(item, "__float__"):
        raise Refused(f"type {type(item).__name__}")
    return float(item)


_RELAXED = 2
_streams: dict[int, Any] = {}
_thread = threading.local()


def mark_here(device: int) -> Any:
    """Record a CUDA event after everything queued in the caller's stream."""
    torch: Any = sys.modules["torch"]
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


def fetch(tensors: list[Any], after: set[Any]) -> tuple[Any, Any]:
    """Queue one gather kernel and one copy on a side stream; return the host tensor and the event of its arrival.

    The side stream waits for the events `after`; the streams they were recorded on are not touched because one may be
    capturing a graph.
    """
    torch: Any = sys.modules["torch"]
    with beside(tensors[0].device, after) as side:
        gathered = torch.cat(tensors)
        host = torch.empty(gathered.shape, dtype=gathered.dtype, pin_memory=True)
        host.copy_(gathered, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(side)
    return host, arrived


@contextlib.contextmanager
def beside(device: Any, after: Iterable[Any]) -> Iterator[Any]:
    """Queue what the block computes on the side stream of a device, after some events."""
    torch: Any = sys.modules["torch"]
    _relax_capture_mode()
    side = _side_stream(torch, device)
    for event in after:
        side.wait_event(event)
    with torch.cuda.stream(side):
        yield side


def _side_stream(torch: Any, device: Any) -> Any:
    if device.index not in _streams:
        _streams[device.index] = torch.cuda.Stream(device=device)
    return _streams[device.index]


def _relax_capture_mode() -> None:
    """Set this thread's capture mode to relaxed, so that its calls do not affect a graph captured by another thread.

    Otherwise querying or allocating for a copy would abort that capture with an error.
    """
    if getattr(_thread, "relaxed", False):
        return
    _thread.relaxed = True
    import ctypes  # only for tensors on a device

    try:
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))
    except (OSError, AttributeError):  # no such driver: then nothing can be captured either
        pass


Reader = Callable[[str, Any], Any]


class Held:
    """One value on a device: element `index` of `value` once it is copied by `freeze`."""

    __slots__ = ("event", "index", "library", "value")

    def __init__(self, library: str, value: Any) -> None:
        self.library = library
        self.value = value
        self.index = 0
        self.event: Any = None


def reader_for(kind: type) -> Reader | None:
    """Choose the reader for a tensor type of an imported library; None for other types."""
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return hold_torch
    jax = sys.modules.get("jax")
    if jax is not None and issubclass(kind, jax.Array):
        return hold_jax
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and issubclass(kind, (tensorflow.Tensor, tensorflow.Variable)):
        return hold_tensorflow
    return None


def hold_torch(key: str, tensor: Any) -> Any:
    """Read a CPU tensor at once; hold one on a device."""
    if tensor.numel() != 1:
        raise Refused("vector")
    if tensor.dtype.is_complex:
        raise Refused("complex")
    if tensor.is_meta:
        raise Refused("on device meta, which holds no values")
    return plain(tensor.item()) if tensor.is_cpu else Held("torch", tensor)


def hold_jax(key: str, array: Any) -> Any:
    """Hold a jax array (they never change) and request its copy to the host."""
    if array.size != 1:
        raise Refused("vector")
    array.copy_to_host_async()
    return Held("jax", array)


def hold_tensorflow(key: str, tensor: Any) -> Any:
    """Hold a tensor (they never change), or the present value of a variable."""
    value = tensor.read_value() if hasattr(tensor, "read_value") else tensor
    if value.shape.num_elements() != 1:
        raise Refused("vector")
    return Held("tensorflow", value)


def freeze(held: Iterable[Held]) -> None:
    """Copy the torch tensors of one call on their device, with one kernel per dtype and device."""
    groups: dict[Any, list[Held]] = {}
    for each in held:
        if each.library == "torch":
            tensor = each.value
            groups.setdefault((tensor.dtype, tensor.get_device()), []).append(each)
    for (_, device), group in groups.items():
        torch = sys.modules["torch"]
        if group[0].value.is_cuda and torch.cuda.is_current_stream_capturing():
            raise Refused("inside a graph being captured")
        _freeze_together(torch, device, group)


def _freeze_together(torch: Any, device: int, group: list[Held]) -> None:
    first = group[0].value
    if len(group) == 1:
        frozen = first.detach().clone()
    else:
        frozen = torch.stack([each.value if each.value.dim() == 0 else each.value.reshape(()) for each in group])
        if frozen.requires_grad:
            frozen = frozen.detach()
    event = mark_here(device) if first.is_cuda else None
    for index, each in enumerate(group):
        each.value, each.index, each.event = frozen, index, event


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
    """The transfer of the held values of some rows to the host."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._held = [each for row in rows for each in row.values.values() if type(each) is Held]
        self._arrivals: list[tuple[list[Any], Any, Any]] = []
        self._numbers: dict[int, list[Any] | Exception] = {}
        """The numbers of a tensor by its id, or the error that reading it raised."""
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
        """Return whether every value has arrived."""
        arrived = all(event is None or event.query() for _, _, event in self._arrivals)
        return arrived and all(_is_computed(each) for each in self._held if each.library == "jax")

    def finish(self, refuse: Refuse) -> list[Row]:
        """Replace the held values by numbers; `refuse` is called for those that cannot be read."""
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
    """Start the transfer of tensors of one device and dtype; return the tensors, their destination and its event."""
    frozen = [each.value for each in held]
    parts = [tensor.reshape(-1) for tensor in frozen]
    if frozen[0].is_cuda:
        return frozen, *fetch(parts, {each.event for each in held})
    return frozen, sys.modules["torch"].cat(parts).cpu(), None


def _is_computed(held: Held) -> bool:
    return bool(held.value.is_deleted()) or bool(held.value.is_ready())
