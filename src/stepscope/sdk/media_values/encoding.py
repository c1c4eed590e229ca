"""Encode captured media: PNG and WAV with the standard library, other formats through Pillow where it is asked for."""

import io
import struct
import sys
import zlib
from typing import Any

from stepscope.sdk.media_values.capture import Unusable, tiled

CHANNELS = (1, 3, 4)
LEVEL = 1
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
_UP = 2
"""The filter of PNG that stores the difference to the row above; of any image it is computed at the speed of memory."""
MAX_SIDE = 2**16
"""Pixels of one side; a browser shows no larger image."""


def pixels(array: Any, *, channels_first: bool) -> Any:
    """Return an image as uint8 of shape (height, width, channels); Unusable for other shapes.

    Channels that come first are recognised where the last dimension has another size. Floats from 0 to 1 are scaled to
    255, as are those from -1 to 1; all others are clipped to 0 and 255.
    """
    if array.ndim == 2:
        array = array[:, :, None]
    elif array.ndim >= 3 and array.shape[-3] in CHANNELS and (channels_first or array.shape[-1] not in CHANNELS):
        array = array.swapaxes(-3, -2).swapaxes(-2, -1)
    if array.ndim == 4:
        array = tiled(array)
    if array.ndim != 3 or array.shape[2] not in CHANNELS:
        raise Unusable(f"an image of shape {array.shape}")
    if not 0 < max(array.shape[:2]) <= MAX_SIDE or not array.size:
        raise Unusable(f"an image of {array.shape[1]} by {array.shape[0]} pixels")
    return _to_bytes(array)


def _to_bytes(array: Any) -> Any:
    import numpy  # whoever has an array has it

    if array.dtype == numpy.uint8:
        return numpy.ascontiguousarray(array)
    if array.dtype == bool:
        return numpy.ascontiguousarray(array.astype(numpy.uint8) * 255)
    if array.dtype.kind == "f":
        array = numpy.nan_to_num(array.astype(numpy.float32), nan=0.0, posinf=255.0, neginf=0.0)
        low, high = float(array.min()), float(array.max())
        if low >= 0 and high <= 1:
            array = array * 255
        elif low >= -1 and high <= 1:
            array = (array + 1) * 127.5
    return numpy.ascontiguousarray(numpy.clip(array, 0, 255).astype(numpy.uint8))


def png(array: Any, *, fast: bool = False) -> bytes:
    """Encode pixels as PNG, outside the GIL; with `fast` nothing is compressed, which takes a fraction of the time."""
    import numpy  # whoever has an array has it

    height, width, channels = array.shape
    rows = array.reshape(height, width * channels)
    filtered = numpy.empty((height, width * channels + 1), numpy.uint8)
    filtered[:, 0] = _UP
    filtered[0, 1:] = rows[0]
    numpy.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    squeeze = zlib.compressobj(0 if fast else LEVEL, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    data = squeeze.compress(filtered.data) + squeeze.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    return b"".join((b"\x89PNG\r\n\x1a\n", *_chunk(b"IHDR", head), *_chunk(b"IDAT", data), *_chunk(b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> tuple[bytes, ...]:
    return struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))


def with_pillow(array: Any, format: str) -> bytes:
    """Encode pixels in a format of Pillow's, such as `jpeg` or `webp`; Unusable without it."""
    image = pillow().fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    if format in ("jpeg", "jpg") and image.mode == "RGBA":
        image = image.convert("RGB")
    made = io.BytesIO()
    try:
        image.save(made, format="jpeg" if format == "jpg" else format)
    except (KeyError, OSError, ValueError) as error:
        raise Unusable(f"Pillow cannot write {format[:20]}: {error}") from None
    return made.getvalue()


def pillow() -> Any:
    """Return Pillow's module of images; Unusable where it is not installed."""
    try:
        import PIL.Image
    except ImportError:
        raise Unusable("needs Pillow: pip install pillow") from None
    return PIL.Image


def from_pillow(image: Any) -> Any:
    """Return the pixels of one of Pillow's images."""
    import numpy  # Pillow's images become arrays

    if image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("L" if image.mode == "1" else "RGBA" if image.mode in ("LA", "P", "PA") else "RGB")
    return numpy.asarray(image)


def gif(frames: Any, fps: float) -> bytes:
    """Encode frames, an array of uint8 of shape (time, height, width, channels), as GIF; Unusable without Pillow."""
    made = pillow()
    images = [made.fromarray(each[:, :, 0] if each.shape[2] == 1 else each) for each in frames]
    out = io.BytesIO()
    images[0].save(out, format="gif", save_all=True, append_images=images[1:], duration=1000 / max(fps, 0.1), loop=0)
    return out.getvalue()


def video_frames(array: Any) -> Any:
    """Return a video as uint8 of shape (time, height, width, channels); Unusable for other shapes.

    Channels may come before height and width; several videos in one array are laid out beside each other.
    """
    if array.ndim == 5:
        import numpy  # whoever has an array has it

        array = numpy.stack([pixels(array[:, at], channels_first=_is_first(array)) for at in range(array.shape[1])])
        return array
    if array.ndim != 4 or not array.shape[0]:
        raise Unusable(f"a video of shape {array.shape}")
    shaped = array.swapaxes(-3, -2).swapaxes(-2, -1) if _is_first(array) else array
    if shaped.shape[-1] not in CHANNELS:
        raise Unusable(f"a video of shape {array.shape}")
    return _to_bytes(shaped)


def _is_first(array: Any) -> bool:
    """Return whether the channels of a video come before height and width."""
    return array.shape[-3] in CHANNELS and array.shape[-1] not in CHANNELS


def wav(samples: Any, rate: int) -> bytes:
    """Encode samples, of shape (time) or (time, channels), as WAV with 16 bits; floats are from -1 to 1."""
    import numpy  # whoever has an array has it

    if samples.ndim == 2 and samples.shape[0] < samples.shape[1]:
        samples = samples.T  # channels first
    if samples.ndim not in (1, 2) or not samples.size or (samples.ndim == 2 and samples.shape[1] > 64):
        raise Unusable(f"audio of shape {samples.shape}")
    if samples.dtype.kind == "f":
        samples = numpy.clip(numpy.nan_to_num(samples), -1, 1) * 32767
    elif samples.dtype.itemsize == 4:
        samples = samples >> 16
    data = numpy.ascontiguousarray(numpy.clip(samples, -32768, 32767).astype("<i2")).tobytes()
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


def is_figure(value: Any) -> bool:
    """Return whether a value is a figure of matplotlib's."""
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, figure.FigureBase)


def draw(figure: Any) -> Any:
    """Draw a figure of matplotlib's; return its pixels. This takes as long as drawing it does."""
    import numpy  # matplotlib has it

    out = io.BytesIO()
    figure.savefig(out, format="rgba", dpi=figure.dpi)
    width, height = (int(side) for side in figure.bbox.size)
    return numpy.frombuffer(out.getvalue(), numpy.uint8).reshape(height, width, 4)
