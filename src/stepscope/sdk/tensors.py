"""Values that live on a device: held by reference in the call, read together later, never waited for.

A torch tensor that its owner may still change is cloned on its own stream (a queued kernel, no wait): the first one
under a key, one that is logged again, a view, or one changed in place before. A fresh result, such as a loss, is held
as it is; should it be changed in place before it was read, it is refused rather than recorded wrong.
"""

import sys
import weakref
from collections.abc import Callable
from typing import Any

from stepscope.sdk.scalars import Refused, plain

Reader = Callable[[str, Any], Any]
_last: dict[str, Any] = {}
_LAST_LIMIT = 100_000


class Held:
    """One value on a device and what is needed to read it."""

    __slots__ = ("library", "stream", "value", "version")

    def __init__(self, library: str, value: Any, version: int = 0, stream: Any = None) -> None:
        self.library = library
        self.value = value
        self.version = version
        self.stream = stream


def reader_for(kind: type) -> Reader | None:
    """Choose the reader for a tensor type of a library that is already imported; None when it is no tensor."""
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
    if tensor.is_complex():
        raise Refused("complex")
    return plain(tensor.item()) if tensor.device.type == "cpu" else snapshot(key, tensor)


def snapshot(key: str, tensor: Any) -> Held:
    """Hold a torch tensor such that its present value can be read later, or be known to be lost."""
    last = _last.get(key)
    again = last is None or last() is tensor
    if len(_last) < _LAST_LIMIT or not again:
        _last[key] = weakref.ref(tensor)
    value = tensor.detach()
    if again or tensor._base is not None or version(tensor) != 0:
        value = value.clone()
    return Held("torch", value, version(value), _torch_stream(tensor))


def version(tensor: Any) -> int:
    """How often a tensor was changed in place; -1 for one made in inference mode, which does not count."""
    return -1 if tensor.is_inference() else int(tensor._version)


def _torch_stream(tensor: Any) -> Any:
    """The stream the tensor's work was queued on, as numbers: the reader waits for it on a stream of its own."""
    if tensor.device.type != "cuda":
        return None
    return sys.modules["torch"]._C._cuda_getCurrentStream(tensor.device.index)


def hold_jax(key: str, array: Any) -> Any:
    """Hold a jax array (they never change) and ask for its copy to the host."""
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
