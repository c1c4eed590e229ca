"""`sync_tensorboard`: record what a script writes to TensorBoard, with any library."""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

from stepscope.dialects.wandb.shim.media import Audio, Histogram, Image, Video


class Follower(Protocol):
    """Receives the data written to TensorBoard; the step is None when the call has none."""

    def log(self, data: dict[str, Any], step: Any) -> None:
        """Receive numbers, histograms and media by tag."""

    def text(self, tag: str, text: str, step: Any) -> None:
        """Receive a text."""

    def hyperparameters(self, values: Mapping[str, Any]) -> None:
        """Receive hyperparameters."""


Passing = Callable[[Follower], None]
"""Passes the arguments of one call on to a follower."""

_follower: Follower | None = None
_watching = threading.local()


def follow(follower: Follower | None) -> None:
    """Pass all data written to TensorBoard from now on to a follower; None stops it.

    Imported modules are patched immediately, others on import.
    """
    global _follower
    _follower = follower
    if follower is None:
        return
    for name, patch in _PATCHES.items():
        if name in sys.modules:
            patch(sys.modules[name])
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _after(original: Callable[..., Any], read: Callable[..., Passing]) -> Any:
    """Wrap a function so that its arguments are passed to the follower afterwards; a second patch changes nothing."""
    if hasattr(original, "_stepscope_original"):
        return original

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        follower = _follower
        if follower is not None:
            with contextlib.suppress(Exception):  # unknown arguments or values
                read(*args, **kwargs)(follower)
        return result

    call._stepscope_original = original  # type: ignore[attr-defined]
    return call


def _scalar(writer: Any, tag: str, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any) -> Passing:
    return lambda follower: follower.log({tag: _first(scalar_value)}, global_step)


def _scalars(writer: Any, main_tag: str, tag_scalar_dict: Any, global_step: Any = None, *_: Any, **__: Any) -> Passing:
    values = {f"{main_tag}/{tag}": _first(value) for tag, value in tag_scalar_dict.items()}
    return lambda follower: follower.log(values, global_step)


def _histogram(writer: Any, tag: str, values: Any, global_step: Any = None, *_: Any, **__: Any) -> Passing:
    # The writer has already waited for a tensor on a device, so reading it again does not block.
    read = values.detach().cpu() if hasattr(values, "detach") else values
    return lambda follower: follower.log({tag: Histogram(read)}, global_step)


def _text(writer: Any, tag: str, text_string: Any, global_step: Any = None, *_: Any, **__: Any) -> Passing:
    return lambda follower: follower.text(tag, str(text_string), global_step)


def _image(
    writer: Any,
    tag: str,
    img_tensor: Any,
    global_step: Any = None,
    walltime: Any = None,
    dataformats: str = "CHW",
    **_: Any,
) -> Passing:
    image = _channels_last(_on_host(img_tensor), dataformats)
    return lambda follower: follower.log({tag: Image(image)}, global_step)


def _image_with_boxes(
    writer: Any, tag: str, img_tensor: Any, box_tensor: Any, global_step: Any = None, *_: Any, **named: Any
) -> Passing:
    return _image(writer, tag, img_tensor, global_step, dataformats=named.get("dataformats", "CHW"))


def _figure(writer: Any, tag: str, figure: Any, global_step: Any = None, *_: Any, **__: Any) -> Passing:
    figures = figure if isinstance(figure, list) else [figure]
    return lambda follower: follower.log({tag: [Image(each) for each in figures]}, global_step)


def _video(
    writer: Any, tag: str, vid_tensor: Any, global_step: Any = None, fps: Any = 4, *_: Any, **__: Any
) -> Passing:
    video = _on_host(vid_tensor)
    return lambda follower: follower.log({tag: Video(video, fps=fps)}, global_step)


def _audio(
    writer: Any, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: Any = 44100, *_: Any, **__: Any
) -> Passing:
    sound = _on_host(snd_tensor)
    return lambda follower: follower.log({tag: Audio(sound, sample_rate)}, global_step)


def _on_host(value: Any) -> Any:
    """Return an array of what was written; the writer has already waited for a tensor on a device."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def _channels_last(image: Any, order: str) -> Any:
    """Return an image with the channels last, as `dataformats` says where they are; some names are files."""
    if not hasattr(image, "transpose") or len(order) != getattr(image, "ndim", 0) or "C" not in order:
        return image
    return image.transpose([order.index(letter) for letter in order.replace("C", "") + "C"])


def _hyperparameters(writer: Any, hparam_dict: Any, *_: Any, **__: Any) -> Passing:
    # The writer passes the accompanying metrics to `add_scalar`, which is patched too.
    return lambda follower: follower.hyperparameters(hparam_dict)


def _tf_scalar(name: str, data: Any, step: Any = None, *_: Any, **__: Any) -> Passing:
    return lambda follower: follower.log({name: data}, _tf_step(step))


def _tf_histogram(name: str, data: Any, step: Any = None, *_: Any, **__: Any) -> Passing:
    values = data.numpy() if hasattr(data, "numpy") else data
    return lambda follower: follower.log({name: Histogram(values)}, _tf_step(step))


def _tf_text(name: str, data: Any, step: Any = None, *_: Any, **__: Any) -> Passing:
    found = data.numpy() if hasattr(data, "numpy") else data
    text = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
    return lambda follower: follower.text(name, text, _tf_step(step))


def _tf_image(name: str, data: Any, step: Any = None, max_outputs: Any = 3, *_: Any, **__: Any) -> Passing:
    images = data.numpy() if hasattr(data, "numpy") else data
    shown = [Image(each) for each in images[: int(max_outputs)]]
    return lambda follower: follower.log({name: shown}, _tf_step(step))


def _tf_audio(name: str, data: Any, sample_rate: Any, step: Any = None, *_: Any, **__: Any) -> Passing:
    sounds = data.numpy() if hasattr(data, "numpy") else data
    return lambda follower: follower.log({name: [Audio(each, int(sample_rate)) for each in sounds]}, _tf_step(step))


def _tf_step(step: Any) -> Any:
    """Return the step as a number: TensorFlow may pass a variable, and has a default step."""
    if step is None:
        step = sys.modules["tensorflow"].summary.experimental.get_step()
    return int(step.numpy()) if hasattr(step, "numpy") else step


def _first(value: Any) -> Any:
    """Return the only element of a sequence of length 1, which writers accept as a scalar."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


_WRITER_METHODS: dict[str, Callable[..., Passing]] = {
    "add_scalar": _scalar,
    "add_scalars": _scalars,
    "add_histogram": _histogram,
    "add_text": _text,
    "add_image": _image,
    "add_images": _image,
    "add_image_with_boxes": _image_with_boxes,
    "add_figure": _figure,
    "add_video": _video,
    "add_audio": _audio,
    "add_hparams": _hyperparameters,
}
_TENSORFLOW_FUNCTIONS: dict[str, Callable[..., Passing]] = {
    "scalar": _tf_scalar,
    "histogram": _tf_histogram,
    "text": _tf_text,
    "image": _tf_image,
    "audio": _tf_audio,
}


def _patch(owner: Any, readers: Mapping[str, Callable[..., Passing]]) -> None:
    for name, read in readers.items():
        if hasattr(owner, name):
            setattr(owner, name, _after(getattr(owner, name), read))


def _patch_writer(module: ModuleType) -> None:
    _patch(getattr(module, "SummaryWriter", None), _WRITER_METHODS)


def _patch_tensorflow(module: ModuleType) -> None:
    _patch(module, _TENSORFLOW_FUNCTIONS)


_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "torch.utils.tensorboard.writer": _patch_writer,
    "tensorboardX.writer": _patch_writer,
    "tensorflow._api.v2.summary": _patch_tensorflow,
}
"""The modules of the writers."""


class _Finder(importlib.abc.MetaPathFinder):
    """An import hook that patches the writers' modules when they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a writer's module; None for any other."""
        if fullname not in _PATCHES or getattr(_watching, "busy", False):
            return None
        _watching.busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            _watching.busy = False
        if spec is not None and spec.loader is not None:
            _patch_when_loaded(spec.loader, _PATCHES[fullname])
        return spec


def _patch_when_loaded(loader: Any, patch: Callable[[ModuleType], None]) -> None:
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        patch(module)

    loader.exec_module = exec_module


_FINDER = _Finder()
