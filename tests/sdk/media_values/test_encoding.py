"""What is encoded can be read back by the libraries of others."""

import io
import wave
from typing import Any

import numpy as np
import pytest

from stepscope.sdk.media_values import encoding
from stepscope.sdk.media_values.capture import Unusable

pillow = pytest.importorskip("PIL.Image", reason="Pillow reads what was written")


def read(data: bytes) -> Any:
    """The pixels of an image, as Pillow reads it."""
    return np.asarray(pillow.open(io.BytesIO(data)))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (13, 1), (37, 53)])
def test_png_holds_every_pixel(channels: int, size: tuple[int, int]) -> None:
    """Any size and number of channels comes back as it was."""
    image = np.random.default_rng(1).integers(0, 256, (*size, channels), np.uint8)
    for fast in (False, True):
        found = read(encoding.png(encoding.pixels(image, channels_first=False), fast=fast))
        assert np.array_equal(found.reshape(image.shape), image)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.array([[0.0, 0.5, 1.0]]), [0, 127, 255]),
        (np.array([[-1.0, 0.0, 1.0]]), [0, 127, 255]),
        (np.array([[0.0, 2.0, 300.0]]), [0, 2, 255]),
        (np.array([[0.0, np.nan, 1.0]]), [0, 0, 255]),
        (np.array([[False, True, False]]), [0, 255, 0]),
        (np.array([[-5, 7, 999]]), [0, 7, 255]),
    ],
)
def test_values_become_bytes(given: Any, expected: list[int]) -> None:
    """Floats are scaled by their range, other numbers are clipped, and NaN is black."""
    assert encoding.pixels(given, channels_first=False).ravel().tolist() == expected


def test_channels_first_and_batches() -> None:
    """A tensor's channels come first; several images are laid out in rows, and the room that is left is black."""
    one = np.zeros((3, 4, 5), np.uint8)
    assert encoding.pixels(one, channels_first=True).shape == (4, 5, 3)
    assert encoding.pixels(np.zeros((1, 28, 28)), channels_first=False).shape == (28, 28, 1)
    five = np.full((5, 3, 4, 6), 9, np.uint8)
    grid = encoding.pixels(five, channels_first=True)
    assert grid.shape == (8, 18, 3)
    assert (grid[:4] == 9).all()
    assert (grid[4:, 12:] == 0).all()


@pytest.mark.parametrize("shape", [(3,), (2, 3, 5), (0, 4), (2, 2, 2, 2, 2), (1, 70_000)])
def test_other_shapes_are_named(shape: tuple[int, ...]) -> None:
    """What is no image is refused with its shape or size."""
    with pytest.raises(Unusable, match="an image of"):
        encoding.pixels(np.zeros(shape, np.uint8), channels_first=False)


@pytest.mark.parametrize(
    ("samples", "first"),
    [
        (np.array([0.0, 1.0, -1.0, 5.0]), [0, 32767, -32767, 32767]),
        (np.array([[0.5], [0.0]], np.float32), [16383, 0]),
        (np.array([1, -2], np.int16), [1, -2]),
        (np.array([65536, -65536], np.int32), [1, -1]),
    ],
)
def test_wav_is_read_by_the_standard_library(samples: Any, first: list[int]) -> None:
    """Floats and integers become 16 bits."""
    with wave.open(io.BytesIO(encoding.wav(samples, 8000))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 1, 2)
        assert np.frombuffer(file.readframes(10), "<i2").tolist() == first


def test_stereo_in_either_order() -> None:
    """The longer dimension is the time."""
    for shape in ((100, 2), (2, 100)):
        with wave.open(io.BytesIO(encoding.wav(np.zeros(shape), 8000))) as file:
            assert (file.getnchannels(), file.getnframes()) == (2, 100)


@pytest.mark.parametrize("shape", [(6, 8, 9, 3), (6, 3, 8, 9), (2, 6, 3, 8, 9)])
def test_frames_become_a_gif(shape: tuple[int, ...]) -> None:
    """In either order of the dimensions; several videos are beside each other."""
    video = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    frames = encoding.video_frames(video)
    made = pillow.open(io.BytesIO(encoding.gif(frames, 4)))
    assert made.n_frames == 6
    assert made.size == (9 if len(shape) == 4 else 18, 8)
