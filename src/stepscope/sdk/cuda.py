"""CUDA from the flusher's thread: a stream of its own, and no call that could spoil a graph being captured."""

import ctypes
import sys
import threading
from typing import Any

_RELAXED = 2
_streams: dict[int, Any] = {}
_thread = threading.local()


def mark_here(device: int) -> Any:
    """Make an event that passes when all that is queued in the caller's stream now is done."""
    torch: Any = sys.modules["torch"]
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


def fetch(tensors: list[Any], after: set[Any]) -> tuple[Any, Any]:
    """Queue one gathering kernel and one copy on a side stream: where the values arrive, and the event that says so.

    The stream waits for the events `after`; the streams they were made on are not touched, for one may be captured.
    """
    torch: Any = sys.modules["torch"]
    _relax()
    side = _side_stream(torch, tensors[0].device)
    for event in after:
        side.wait_event(event)
    with torch.cuda.stream(side):
        gathered = torch.cat(tensors)
        host = torch.empty(gathered.shape, dtype=gathered.dtype, pin_memory=True)
        host.copy_(gathered, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(side)
    return host, arrived


def _side_stream(torch: Any, device: Any) -> Any:
    if device.index not in _streams:
        _streams[device.index] = torch.cuda.Stream(device=device)
    return _streams[device.index]


def _relax() -> None:
    """Tell the driver that this thread's calls have nothing to do with a graph another thread captures.

    Without it, asking whether a copy is done, or allocating for one, ends that capture with an error.
    """
    if getattr(_thread, "relaxed", False):
        return
    _thread.relaxed = True
    try:
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))
    except (OSError, AttributeError):  # no such driver: then nothing can be captured either
        pass
