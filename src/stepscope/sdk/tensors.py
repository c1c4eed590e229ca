"""Values that live on a device: copied there by one queued kernel in the call, read together later, never waited for.

A reference alone would not do: the memory behind it may be written again before it is read, by an in-place operation,
a collective, a replayed graph or a kernel torch knows nothing of. The copy is queued on the stream the value was made
on, so it holds the value as it was.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from stepscope.sdk import cuda
from stepscope.sdk.scalars import Refused, plain

Reader = Callable[[str, Any], Any]


class Held:
    """One value on a device: element `index` of `value` once it is frozen."""

    __slots__ = ("event", "index", "library", "value")

    def __init__(self, library: str, value: Any) -> None:
        self.library = library
        self.value = value
        self.index = 0
        self.event: Any = None


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
    if tensor.dtype.is_complex:
        raise Refused("complex")
    if tensor.is_meta:
        raise Refused("on device meta, which holds no values")
    return plain(tensor.item()) if tensor.is_cpu else Held("torch", tensor)


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


def freeze(held: Iterable[Held]) -> None:
    """Copy the torch tensors of one call where they are: one kernel for those of a type."""
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
    event = cuda.mark_here(device) if first.is_cuda else None
    for index, each in enumerate(group):
        each.value, each.index, each.event = frozen, index, event
