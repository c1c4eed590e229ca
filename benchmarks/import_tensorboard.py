"""The speed of `stepscope import`: `python -m benchmarks.import_tensorboard` writes event files and imports them."""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

from stepscope.dialects.tensorboard.wire.crc32c import crc32c, masked

_TAGS = ("train/loss", "train/accuracy", "lr", "grad/norm", "eval/loss", "time/step", "tokens", "gpu/util")
_FIRST_STEP = 1 << 14
"""Steps whose varint has three bytes, so that all records of a tag have one size."""
_LAST_STEP = 1 << 21


def _template(tag: str) -> bytes:
    """A record with a scalar: wall time, step, tag and value, as the writers of TensorBoard make it."""
    value = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + bytes(4)
    summary = b"\x0a" + bytes([len(value)]) + value
    body = b"\x09" + bytes(8) + b"\x10" + bytes(3) + b"\x2a" + bytes([len(summary)]) + summary
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", masked(crc32c(head))) + body + bytes(4)


def _records(tag: str, steps: "numpy.ndarray") -> "numpy.ndarray":
    """The records of a tag at some steps, a row of bytes each."""
    template = _template(tag)
    rows = numpy.tile(numpy.frombuffer(template, numpy.uint8), (len(steps), 1))
    rows[:, 13:21] = (1.7e9 + steps / 8).astype("<f8").view(numpy.uint8).reshape(-1, 8)
    for place in range(3):
        rows[:, 22 + place] = (steps >> 7 * place) & 0x7F | (0x80 if place < 2 else 0)
    rows[:, -8:-4] = (1 / (1 + steps)).astype("<f4").view(numpy.uint8).reshape(-1, 4)
    rows[:, -4:] = _checksums(rows[:, 12:-4]).astype("<u4").view(numpy.uint8).reshape(-1, 4)
    return rows


def _checksums(bodies: "numpy.ndarray") -> "numpy.ndarray":
    table = numpy.array([crc32c(bytes([byte ^ 0xFF])) ^ 0xFF000000 for byte in range(256)], numpy.uint32)
    crc = numpy.full(len(bodies), 0xFFFFFFFF, numpy.uint32)
    for column in range(bodies.shape[1]):
        crc = table[(crc ^ bodies[:, column]) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + numpy.uint32(0xA282EAD8)


def write_events(folder: Path, points: int) -> None:
    """Write event files with so many scalars of eight tags in turn, in a run each 8 M."""
    steps = points // len(_TAGS)
    most = _LAST_STEP - _FIRST_STEP
    for number in range(-(-steps // most)):
        place = folder / f"run{number}"
        place.mkdir(parents=True)
        with open(place / "events.out.tfevents.1700000000.host", "wb") as file:
            first, last = number * most, min(steps, (number + 1) * most)
            for start in range(first, last, 50_000):
                here = numpy.arange(start, min(start + 50_000, last)) - first + _FIRST_STEP
                file.write(numpy.concatenate([_records(tag, here) for tag in _TAGS], axis=1).tobytes())


def measure(points: int, source: Path | None) -> dict[str, float]:
    """Import the files in a process of its own; its time, processor time and largest memory."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "logs"
        write_events(folder, points)
        env = {**os.environ, "PYTHONPATH": str(source)} if source else dict(os.environ)
        command = [
            sys.executable,
            "-m",
            "stepscope",
            "import",
            str(folder),
            "--home",
            str(Path(place) / "home"),
            "--json",
        ]
        began = time.monotonic()
        child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert child.stdout is not None
        answer = json.loads(child.stdout.read())
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        assert sum(run["values"] for run in answer["runs"]) == points // len(_TAGS) * len(_TAGS)
        wall, cpu = time.monotonic() - began, used.ru_utime + used.ru_stime
    return {
        "points per second": points / wall,
        "points per CPU second": points / cpu,
        "CPU seconds per million points": cpu / points * 1e6,
        "peak memory in MiB": used.ru_maxrss / 1024,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=2_000_000)
    parser.add_argument("--source", type=Path, help="the src folder of another checkout, to compare with")
    given = parser.parse_args()
    for name, value in measure(given.points, given.source).items():
        print(f"{name}: {value:,.2f}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
