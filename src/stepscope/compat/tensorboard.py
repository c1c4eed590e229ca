"""`sync_tensorboard`: what scripts write to TensorBoard is recorded as well, whichever library writes it."""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from stepscope.compat.media import Histogram

Log = Callable[[dict[str, Any], Any], object]
"""Takes values and the step they were written with, None when none was given."""

_log: Log | None = None
_watching = threading.local()


def follow(log: Log | None) -> None:
    """Give everything that is written to TensorBoard from now on to `log`; None ends that.

    Modules that are imported are changed at once, others when they are imported.
    """
    global _log
    _log = log
    if log is None:
        return
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _tell(values: Callable[[], dict[str, Any]], step: Any) -> None:
    """Pass values on, if somebody follows; never raises."""
    log = _log
    if log is None:
        return
    try:
        log(values(), step)
    except Exception:  # values of a shape nobody expects are the writer's to complain about
        pass


def _after(original: Callable[..., Any], read: Callable[..., tuple[Callable[[], dict[str, Any]], Any]]) -> Any:
    """Make a function that does as before and then tells what it was given; changing it again changes nothing."""
    if hasattr(original, "_stepscope_original"):
        return original

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if _log is not None:
            try:
                values, step = read(*args, **kwargs)
            except TypeError:  # arguments of a release not known here
                return result
            _tell(values, step)
        return result

    call._stepscope_original = original  # type: ignore[attr-defined]
    return call


def _scalar(writer: Any, tag: str, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any) -> Any:
    return lambda: {tag: _first(scalar_value)}, global_step


def _scalars(writer: Any, main_tag: str, tag_scalar_dict: Any, global_step: Any = None, *_: Any, **__: Any) -> Any:
    return lambda: {f"{main_tag}/{tag}": _first(value) for tag, value in tag_scalar_dict.items()}, global_step


def _histogram(writer: Any, tag: str, values: Any, global_step: Any = None, *_: Any, **__: Any) -> Any:
    # The writer has waited for a tensor on a device by now, so that reading it again takes no further waiting.
    return lambda: {tag: Histogram(values.detach().cpu() if hasattr(values, "detach") else values)}, global_step


def _tf_scalar(name: str, data: Any, step: Any = None, *_: Any, **__: Any) -> Any:
    return lambda: {name: data}, _tf_step(step)


def _tf_histogram(name: str, data: Any, step: Any = None, *_: Any, **__: Any) -> Any:
    return lambda: {name: Histogram(data.numpy() if hasattr(data, "numpy") else data)}, _tf_step(step)


def _tf_step(step: Any) -> Any:
    """The step as a number: TensorFlow keeps it in a variable, and a default of its own."""
    if step is None:
        step = sys.modules["tensorflow"].summary.experimental.get_step()
    return int(step.numpy()) if hasattr(step, "numpy") else step


def _first(value: Any) -> Any:
    """The element of a sequence that has one: writers take those for scalars."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def _change_writer(module: ModuleType) -> None:
    kind = getattr(module, "SummaryWriter", None)
    for name, read in (("add_scalar", _scalar), ("add_scalars", _scalars), ("add_histogram", _histogram)):
        if kind is not None and hasattr(kind, name):
            setattr(kind, name, _after(getattr(kind, name), read))


def _change_tensorflow(module: ModuleType) -> None:
    for name, read in (("scalar", _tf_scalar), ("histogram", _tf_histogram)):
        if hasattr(module, name):
            setattr(module, name, _after(getattr(module, name), read))


_CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "torch.utils.tensorboard.writer": _change_writer,
    "tensorboardX.writer": _change_writer,
    "tensorflow._api.v2.summary": _change_tensorflow,
}
"""The modules in which the writers live."""


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the writers' modules as everybody else does, and has them changed once they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a writer's module; None for any other."""
        if fullname not in _CHANGES or getattr(_watching, "busy", False):
            return None
        _watching.busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            _watching.busy = False
        if spec is not None and spec.loader is not None:
            _change_when_loaded(spec.loader, _CHANGES[fullname])
        return spec


def _change_when_loaded(loader: Any, change: Callable[[ModuleType], None]) -> None:
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        change(module)

    loader.exec_module = exec_module


_FINDER = _Finder()
