"""What `log` takes beside numbers: Image, Audio, Video, File, Html, Figure and Histogram.

Making one copies what could change, and never raises: what cannot be used is rejected, with the reason, when it is
logged. A file that is given by its path is read soon after `log`, so leave it as it is for a moment.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from stepscope.model import records
from stepscope.sdk.context import text_of
from stepscope.sdk.media_values import encoding, histogram
from stepscope.sdk.media_values.capture import (
    MAX_BYTES,
    Captured,
    CudaTensor,
    Unusable,
    capture,
    capture_array,
    check_size,
    is_array,
    is_tensor,
)
from stepscope.sdk.media_values.layers import layers_of
from stepscope.sdk.media_values.medium import Encoded, Medium, as_file


class _Pixels(NamedTuple):
    """An image of another library, and how its pixels are read."""

    image: Any
    nbytes: int
    read: Callable[[Any], Any]
    copy_seconds: float


class Image(Medium):
    """An image: an array of shape (height, width) or (height, width, 1, 3 or 4), a torch tensor with channels first, an
    image of Pillow's, a matplotlib figure, a path or bytes. A batch of images becomes one, laid out in rows.

    Arrays are written as PNG; `format` may name another one, for which Pillow is needed. `boxes` and `masks` are drawn
    over it: dicts by group, with boxes as dicts or rows of (left, top, right, bottom) in pixels, and masks as arrays
    with the class of each pixel. `labels` names the classes. `copy=False` promises that an array, a tensor of the CPU
    or an image of Pillow's will not be changed: it is then read when it is encoded, and `log` need not copy it.
    """

    KIND = "image"
    __slots__ = ("_copy", "_first", "format")

    def __init__(
        self,
        data: Any,
        caption: Any = None,
        *,
        format: str = "png",
        boxes: Any = None,
        masks: Any = None,
        labels: Any = None,
        copy: bool = True,
    ) -> None:
        self.format = text_of(format).lower()
        self._first, self._copy = False, copy
        super().__init__(data, caption)
        if boxes is not None or masks is not None:
            self.layers = layers_of(boxes, masks, labels)

    def _capture(self, data: Any) -> Any:
        if is_array(data):  # at once: a loop that logs one in each step touches little code
            return capture_array(data, self._copy)
        if getattr(data, "__name__", "") == "matplotlib.pyplot":
            data = data.gcf()
        if encoding.is_figure(data):
            return capture(encoding.draw(data))
        pillow = sys.modules.get("PIL.Image")
        if pillow is not None and isinstance(data, pillow.Image):
            size = data.width * data.height * len(data.getbands())
            check_size(size)  # a copy decodes the file
            if not self._copy:
                return _Pixels(data, size, encoding.from_pillow, 0.0)
            began = time.perf_counter()
            return _Pixels(data.copy(), size, encoding.from_pillow, time.perf_counter() - began)
        self._first = is_tensor(data)
        return as_file(data) or capture(data, self._copy)

    def _encode(self, source: "Captured | _Pixels", fast: bool) -> Encoded:
        array = source.read(source.image) if isinstance(source, _Pixels) else source.read()
        found = encoding.pixels(array, channels_first=self._first)
        facts = {"width": found.shape[1], "height": found.shape[0]}
        if self.format == "png":
            return Encoded(encoding.png(found, fast=fast), "png", facts)
        return Encoded(encoding.with_pillow(found, self.format), self.format, facts)


class Figure(Image):
    """A figure of matplotlib's, which is drawn at once, or of plotly's, which is kept as its JSON."""

    __slots__ = ()

    def _capture(self, data: Any) -> Any:
        if not encoding.is_figure(data) and callable(getattr(data, "to_json", None)):
            self.kind, self.name = "file", "figure.plotly.json"
            return text_of(data.to_json()).encode()
        return super()._capture(data)


class Audio(Medium):
    """A sound: samples of shape (time) or (time, channels) with their rate, a path or bytes. Samples become WAV."""

    KIND = "audio"
    __slots__ = ("_rate",)

    def __init__(self, data: Any, sample_rate: Any = None, caption: Any = None) -> None:
        self._rate = sample_rate
        super().__init__(data, caption)

    def _capture(self, data: Any) -> Any:
        found = super()._capture(data)
        if not isinstance(found, (bytes, Path)) and not (isinstance(self._rate, (int, float)) and self._rate >= 1):
            raise Unusable("samples need a sample_rate")
        return found

    def _encode(self, source: Captured, fast: bool) -> Encoded:
        return Encoded(encoding.wav(source.read(), int(self._rate)), "wav")


class Video(Medium):
    """A video: a path or bytes. Arrays of shape (time, height, width, channels) become GIF where Pillow is there."""

    KIND = "video"
    __slots__ = ("_fps",)

    def __init__(self, data: Any, caption: Any = None, *, fps: Any = 4) -> None:
        self._fps = fps
        super().__init__(data, caption)

    def _encode(self, source: Captured, fast: bool) -> Encoded:
        frames = encoding.video_frames(source.read())
        facts = {"width": frames.shape[2], "height": frames.shape[1]}
        return Encoded(encoding.gif(frames, float(self._fps)), "gif", facts)


class File(Medium):
    """Any file, by its path, or bytes with a name."""

    __slots__ = ()

    def __init__(self, data: Any, name: Any = None, caption: Any = None) -> None:
        super().__init__(data, caption, name)

    def _capture(self, data: Any) -> Any:
        found = as_file(data)
        if found is None:
            raise Unusable(f"a file is a path or bytes, not {type(data).__name__}")
        return found


class Html(Medium):
    """An HTML document: its text, or the `Path` of its file. The page shows it in a frame in which no script runs."""

    KIND = "html"
    __slots__ = ()

    def __init__(self, data: Any, caption: Any = None) -> None:
        super().__init__(data, caption)

    def _capture(self, data: Any) -> Any:
        if isinstance(data, str):
            return data.encode("utf-8", "replace")
        found = as_file(data)
        if found is None:
            raise Unusable(f"html is a text or a path, not {type(data).__name__}")
        return found

    def _format_of(self, data: bytes) -> str:
        return "html"


COUNTED_THERE = 1024**2
"""Bytes of a tensor on a device from which on that counts the numbers of a histogram."""


class Histogram(Medium):
    """The distribution of numbers: a list, an array or a tensor; or of counts with the edges of their bins."""

    KIND = "histogram"
    __slots__ = ("_bins", "_made")

    def __init__(self, values: Any = None, bins: Any = 64, *, counts: Any = None, edges: Any = None) -> None:
        self._bins = bins
        self._made: records.Histogram | None = None
        super().__init__(values if counts is None else None if edges is None else (counts, edges))

    def _capture(self, data: Any) -> Any:
        if isinstance(data, tuple) and len(data) == 2 and not isinstance(data[0], (int, float)):
            self._made = histogram.from_counts(*data)
            if self._made is None:
                raise Unusable("no distribution")
            return None
        with contextlib.suppress(TypeError):
            if not hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
                data = list(islice(data, MAX_BYTES // 8 + 1))
        return capture(data)

    def recorded(self) -> records.Histogram:
        """Return the distribution as it is recorded; Unusable when there is none."""
        if self.problem is not None:
            raise Unusable(self.problem)
        if self._made is None:
            self._made = self._count(self._source, histogram.bin_count(self._bins))
            self._source, self.size = None, 0
        if self._made is None:
            raise Unusable("no distribution")
        return self._made

    @staticmethod
    def _count(source: Captured, bins: int) -> records.Histogram | None:
        """Count on the device where that is less work than to copy all numbers to the host."""
        if isinstance(source, CudaTensor) and source.nbytes > COUNTED_THERE:
            return histogram.from_tensor(source.read(lambda tensor: histogram.count_tensor(tensor, bins)))
        return histogram.from_values(source.read(), bins)
