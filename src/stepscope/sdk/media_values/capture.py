"""Capture arrays and tensors: what could change is copied, and nothing waits for a device."""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

from stepscope.sdk import tensors

MAX_BYTES = 64 * 1024**2
"""Memory of what waits to be encoded; what is larger is refused before it is copied."""
_POLL_SECONDS = 0.002
DEVICE_SECONDS = 60.0
"""How long the encoder waits for a copy from a device."""


class Unusable(Exception):
    """Something cannot be recorded; the message is the reason it is counted under."""


def check_size(size: int) -> None:
    """Raise Unusable for what takes more memory than may wait to be encoded."""
    if size > MAX_BYTES:
        raise Unusable(f"more than {MAX_BYTES // 1024**2} MiB in memory")


class HostArray:
    """An array in host memory that nobody else changes: a copy, or one of a library whose arrays never change."""

    __slots__ = ("_array", "copy_seconds", "nbytes", "shape")

    def __init__(self, array: Any, copy_seconds: float = 0.0) -> None:
        self._array = array
        self.copy_seconds = copy_seconds
        """What copying it took of the caller's time."""
        self.shape = tuple(array.shape)
        self.nbytes = int(getattr(array, "nbytes", 0))

    def read(self) -> Any:
        """Return it as a numpy array; of a library with devices this waits for the value."""
        import numpy  # whoever has an array has it

        array = self._array
        return array if isinstance(array, numpy.ndarray) else numpy.asarray(array)


class CudaTensor:
    """A copy of a tensor on its device, taken in the order of the caller's stream."""

    __slots__ = ("_event", "_frozen", "nbytes", "shape")

    def __init__(self, tensor: Any) -> None:
        if sys.modules["torch"].cuda.is_current_stream_capturing():
            raise Unusable("inside a graph being captured")
        check_size(tensor.numel() * tensor.element_size())
        self._frozen = tensor.detach().clone()
        self._event = tensors.mark_here(tensor.get_device())
        self.shape = tuple(tensor.shape)
        self.nbytes = tensor.numel() * tensor.element_size()

    def read(self, compute: Callable[[Any], Any] | None = None) -> Any:
        """Copy it to the host on a side stream, or what is computed of it there; wait, and return a numpy array."""
        frozen = self._frozen
        if compute is not None:
            with tensors.beside(frozen.device, {self._event}):
                frozen = compute(frozen)
        host, arrived = tensors.fetch([frozen.reshape(-1)], {self._event})
        deadline = time.monotonic() + DEVICE_SECONDS
        while not arrived.query():
            if time.monotonic() > deadline:
                raise Unusable("the device did not answer")
            time.sleep(_POLL_SECONDS)
        return _to_numpy(host).reshape(frozen.shape)


Captured = HostArray | CudaTensor


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch, whose channels come first."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def capture(value: Any, copy: bool = True) -> Captured:
    """Capture an array, a tensor or nested lists of numbers; Unusable, or what the value raises, for anything else.

    Without `copy`, what is in host memory is read later where it is: the caller promises not to change it.
    """
    if is_tensor(value):
        return _capture_torch(value, copy)
    jax, tensorflow = sys.modules.get("jax"), sys.modules.get("tensorflow")
    if jax is not None and isinstance(value, jax.Array):
        value.copy_to_host_async()
        return HostArray(value)  # they never change
    if tensorflow is not None and isinstance(value, (tensorflow.Tensor, tensorflow.Variable)):
        return HostArray(value.read_value() if hasattr(value, "read_value") else value)
    if not isinstance(value, (list, tuple)) and not hasattr(value, "__array__"):
        raise Unusable(f"type {type(value).__name__}")
    import numpy  # needed only for arrays

    return capture_array(numpy.asarray(value), copy and not isinstance(value, (list, tuple)))


def capture_array(array: Any, copy: bool = True) -> HostArray:
    """Capture an array of numpy's; Unusable unless it has numbers."""
    if array.dtype.kind not in "biuf":
        raise Unusable("not an array of numbers")
    check_size(array.nbytes)
    return _copy(array) if copy else HostArray(array)


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy's, and of no class that derives from it."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def _copy(array: Any) -> HostArray:
    """Copy an array in the order of its memory; one over immutable bytes, as of a decoded image, needs no copy."""
    owner = array.base
    while hasattr(owner, "base"):  # a view of a view
        owner = owner.base
    if isinstance(owner, bytes):
        return HostArray(array)
    began = time.perf_counter()
    copied = array.copy(order="K")
    return HostArray(copied, time.perf_counter() - began)


def _capture_torch(tensor: Any, copy: bool) -> Captured:
    if tensor.is_meta:
        raise Unusable("on device meta, which holds no values")
    if tensor.dtype.is_complex or tensor.layout != sys.modules["torch"].strided:
        raise Unusable("not a dense tensor of real numbers")
    if tensor.is_cuda:
        return CudaTensor(tensor)
    if not tensor.is_cpu:
        raise Unusable(f"on device {tensor.device}, from which it cannot be copied without waiting")
    check_size(tensor.numel() * tensor.element_size())
    array = _to_numpy(tensor.detach())
    return _copy(array) if copy else HostArray(array)


def _to_numpy(tensor: Any) -> Any:
    """Return a host tensor as numpy array; numpy has no bfloat16 and other short floats."""
    short = tensor.dtype.is_floating_point and tensor.element_size() < 4
    return (tensor.float() if short else tensor).numpy()


def tiled(images: Any) -> Any:
    """Lay out several images of equal size as one, in about as many rows as columns."""
    import numpy  # whoever has an array has it

    count, height, width, channels = images.shape
    columns = max(math.isqrt(max(count - 1, 0)) + 1, 1)
    rows = -(-count // columns)
    room = numpy.zeros((rows * columns, height, width, channels), images.dtype)
    room[:count] = images
    grid = room.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, channels)
