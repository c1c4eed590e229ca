"""Timing of torch functions without hooks: batch loading, collectives, checkpoints."""

import functools
import importlib
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import stepscope
from stepscope.integrations.torch.phases import GpuClock, Phase, failed
from stepscope.model.names import ATTR_BUCKET, ATTR_CHECKPOINT_BYTES, ATTR_CHECKPOINT_PATH, COLLECTIVES

Call = Callable[..., Any]
Describe = Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]
RECENT = 16
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
    clock: GpuClock | None,
    name: str,
    bucket: str,
    describe: Describe,
    active: list[bool],
    after: Describe | None = None,
) -> Callable[[Call], Call]:
    """Record calls of a function as spans, except calls inside another timed call.

    `describe` returns the attributes of a call, `after` those that are known once it has returned.
    """

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
            _end(run, phase, None, None if after is None else partial(after, args, kwargs))
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


def _end(
    run: stepscope.Run,
    phase: Phase | None,
    error: BaseException | None,
    after: Callable[[], dict[str, Any]] | None = None,
) -> None:
    try:
        if phase is not None:
            phase.end(error, after)
    except Exception as problem:
        failed(run, "the end of a call", problem)


def _batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {}


class CollectiveLog:
    """The last collectives that Python code of this process called: their number in the group, name, size and dtype."""

    def __init__(self) -> None:
        self._called: dict[str, int] = {}
        self._last: deque[tuple[str, int, str, int, str]] = deque(maxlen=RECENT)
        self._known: Any = None

    def describe(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Note a call, and return the attributes of its span."""
        run = stepscope.current_run()
        if run is not self._known and run is not None:
            self._known = run
            run.on_position(self.recent)
        found: dict[str, Any] = {"dl.async": True} if kwargs.get("async_op") else {}
        first = next((each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)), None)
        numel, dtype = 0, ""
        if first is not None:
            numel, dtype = first.numel(), str(first.dtype).removeprefix("torch.")
            found["dl.bytes"], found["dl.dtype"] = first.nbytes, dtype
        label = next((each.group_name for each in (*kwargs.values(), *args) if hasattr(each, "group_name")), None)
        if label is not None:
            found["dl.group"] = label
        group = label or ""
        found["dl.sequence"] = number = self._called[group] = self._called.get(group, 0) + 1
        self._last.append((group, number, name, numel, dtype))
        return found

    def recent(self) -> dict[str, Any]:
        """Return the last calls for a report of where this process stands still."""
        return {"recent": [list(each) for each in list(self._last)]}


def _file(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    for each in (*args, *kwargs.values()):
        if isinstance(each, (str, os.PathLike)):
            return {ATTR_CHECKPOINT_PATH: os.fspath(each)}
    return {}


def _size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The size of the file that was just saved."""
    path = _file(args, kwargs).get(ATTR_CHECKPOINT_PATH)
    return {} if path is None else {ATTR_CHECKPOINT_BYTES: os.path.getsize(path)}


def loading(active: list[bool]) -> list[Replaced]:
    """Time how long the loop waits for each batch of a DataLoader."""
    place = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
    return [Replaced("__next__", [place], timed(None, "train.data_load", "idle", _batch, active))]


def collectives(clock: GpuClock, active: list[bool]) -> list[Replaced]:
    """Time collectives called from Python; those that DDP starts in C++ are timed together, after the backward pass."""
    if not torch.distributed.is_available():
        return []
    inner = importlib.import_module("torch.distributed.distributed_c10d")
    places = [inner, torch.distributed]
    log = CollectiveLog()
    return [
        Replaced(
            name, places, timed(clock, f"train.collective.{name}", "overhead", partial(log.describe, name), active)
        )
        for name in COLLECTIVES
    ]


def checkpoints(active: list[bool]) -> list[Replaced]:
    """Time `torch.save` and `torch.load`."""
    places = [importlib.import_module("torch.serialization"), torch]
    return [
        Replaced(name, places, timed(None, f"train.checkpoint.{name}", "overhead", _file, active, after))
        for name, after in (("save", _size), ("load", None))
    ]
