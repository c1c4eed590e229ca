"""Timing of torch functions without hooks: batch loading, collectives, checkpoints."""

import functools
import importlib
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

import stepscope
from stepscope.integrations.torch.phases import GpuClock, Phase, failed
from stepscope.model.names import ATTR_BUCKET

Call = Callable[..., Any]
Describe = Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]
COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter",
)  # fmt: skip
_inside = threading.local()


class Replaced:
    """A function of torch replaced by a timed one, in every module that exposes it."""

    def __init__(self, name: str, places: list[Any], timed: Callable[[Call], Call]) -> None:
        self._name = name
        self._earlier = [(place, vars(place)[name]) for place in places if name in vars(place)]
        self._ours = timed(self._earlier[0][1]) if self._earlier else None
        for place, _ in self._earlier:
            setattr(place, name, self._ours)

    def remove(self) -> None:
        """Restore the function; if other code wrapped ours, it stays in the chain and only forwards calls."""
        for place, earlier in self._earlier:
            if vars(place).get(self._name) is self._ours:
                setattr(place, self._name, earlier)


def timed(
    clock: GpuClock | None, name: str, bucket: str, describe: Describe, active: list[bool]
) -> Callable[[Call], Call]:
    """Record calls of a function as spans, except calls inside another timed call."""

    def around(original: Call) -> Call:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            busy = getattr(_inside, "busy", False)
            run = stepscope.current_run()
            if busy or not active or run is None or torch.compiler.is_compiling():
                return original(*args, **kwargs)
            _inside.busy = True
            phase = _open(run, clock, name, {ATTR_BUCKET: bucket}, lambda: describe(args, kwargs))
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                _end(run, phase, None if isinstance(error, StopIteration) else error)
                raise
            finally:
                _inside.busy = False
            _end(run, phase, None)
            return result

        return call

    return around


def _open(
    run: stepscope.Run, clock: GpuClock | None, name: str, attrs: dict[str, Any], describe: Callable[[], dict[str, Any]]
) -> Phase | None:
    try:
        return Phase(clock, name, {**attrs, **describe()})
    except Exception as problem:
        failed(run, name, problem)
        return None


def _end(run: stepscope.Run, phase: Phase | None, error: BaseException | None) -> None:
    try:
        if phase is not None:
            phase.end(error)
    except Exception as problem:
        failed(run, "the end of a call", problem)


def _batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {}


def _exchange(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The bytes of the first tensor, and whether the call is asynchronous."""
    found: dict[str, Any] = {"dl.async": True} if kwargs.get("async_op") else {}
    first = next((each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)), None)
    if first is not None:
        found["dl.bytes"] = first.nbytes
    return found


def _file(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    for each in (*args, *kwargs.values()):
        if isinstance(each, (str, os.PathLike)):
            return {"train.checkpoint.path": os.fspath(each)}
    return {}


def loading(active: list[bool]) -> list[Replaced]:
    """Time how long the loop waits for each batch of a DataLoader."""
    place = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
    return [Replaced("__next__", [place], timed(None, "train.data_load", "idle", _batch, active))]


def collectives(clock: GpuClock, active: list[bool]) -> list[Replaced]:
    """Time collectives called from Python; those that DDP starts in C++ are not timed."""
    if not torch.distributed.is_available():
        return []
    inner = importlib.import_module("torch.distributed.distributed_c10d")
    places = [inner, torch.distributed]
    return [
        Replaced(name, places, timed(clock, f"train.collective.{name}", "overhead", _exchange, active))
        for name in COLLECTIVES
    ]


def checkpoints(active: list[bool]) -> list[Replaced]:
    """Time `torch.save` and `torch.load`."""
    places = [importlib.import_module("torch.serialization"), torch]
    return [
        Replaced(name, places, timed(None, f"train.checkpoint.{name}", "overhead", _file, active))
        for name in ("save", "load")
    ]
