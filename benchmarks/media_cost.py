"""What an image and samples in every step add to a step of 50 ms: the calls, the whole step, and the other threads.

Turns of steps with and without the calls follow each other; those without make the same pictures and texts.

    python -m benchmarks.media_cost [--image array|kept|cuda|none] [--samples 32] [--work waits|computes|cuda]

On a machine that others use, the processor time of the calls is what says something. Without the project's
environment, as on a machine with a GPU: PYTHONPATH=src:DEPENDENCIES python -m benchmarks.media_cost --image cuda.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import stepscope

BLOCK = 20
"""Steps of one turn; turns with and without media follow each other, so that both see the same machine."""
_PROSE = (
    "the answer is a token of the key idea that each step of this proof has to pass and then we sum over all n because "
    "the total cost per unit is 12.5 and not 7 so x = 3 therefore f(x) returns true in the second case of the table"
)
WORDS = _PROSE.split()


def photo(height: int, width: int) -> np.ndarray:
    """A picture as a camera takes it: smooth, with edges and a little noise."""
    chance = np.random.default_rng(7)
    y, x = np.mgrid[0:height, 0:width]
    base = 128 + 60 * np.sin(x / 97) + 50 * np.cos(y / 61) + 40 * ((x // 120 + y // 90) % 2)
    layers = np.stack([base, base * 0.8 + 20, 255 - base], axis=-1)
    return np.clip(layers + chance.normal(0, 3, layers.shape), 0, 255).astype(np.uint8)


def texts(count: int, size: int) -> list[str]:
    """Prose of so many characters each, none twice."""
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=size // 2))[:size] for _ in range(count)]


def sleeping(seconds: float) -> Callable[[], object]:
    """A step that waits for a device: the processor is free."""
    return lambda: time.sleep(seconds)


def computing(seconds: float) -> Callable[[], object]:
    """A step that keeps one core busy outside the GIL, of about this length when it is alone."""
    rounds = 10_000
    while True:
        began = time.perf_counter()
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", rounds)
        took = time.perf_counter() - began
        if took > 0.02:
            break
        rounds *= 2
    wanted = int(rounds * seconds / took)
    return lambda: hashlib.pbkdf2_hmac("sha256", b"x", b"y", wanted)


def on_device(seconds: float) -> Callable[[], object]:
    """A step of matrix products on a GPU, at whose end the host reads a number, as it does of a loss."""
    import torch

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def products(count: int) -> float:
        for _ in range(count):
            a @ a
        return float(a[0, 0])

    products(50)
    began = time.perf_counter()
    products(200)
    count = max(int(seconds / ((time.perf_counter() - began) / 200)), 1)
    return lambda: products(count)


def pictures(kind: str, height: int, width: int) -> Callable[[], Any]:
    """How each step makes the data of its image; every one is another picture."""
    if kind == "cuda":
        import torch

        tensor = torch.from_numpy(photo(height, width)).permute(2, 0, 1).contiguous().cuda()
        return lambda: tensor.add_(1)
    array = photo(height, width)

    def changed() -> np.ndarray:
        array[:2] = np.roll(array[:2], 1)
        return array

    if kind == "array":
        return changed
    several = [changed().copy() for _ in range(16)]  # more than wait for the encoder
    order = iter(range(10**9))
    return lambda: several[next(order) % len(several)]


def nothing(**columns: Any) -> None:
    """Take what `run.sample` takes."""


def measure(args: argparse.Namespace, home: str) -> dict[str, Any]:
    """Alternate turns with and without media, and return what they took."""
    work = {"waits": sleeping, "computes": computing, "cuda": on_device}[args.work](args.ms / 1e3)
    picture = None if args.image == "none" else pictures(args.image, *map(int, args.size.split("x")))
    rows = texts(args.samples, args.characters)
    run = stepscope.init(home=home, probes=False, otel=False, quiet=True, disk_quota=64 * 1024**3)
    whole: dict[bool, list[float]] = {True: [], False: []}
    spent: dict[bool, list[float]] = {True: [], False: []}
    clock: list[float] = []
    faults = 0
    process = time.process_time() - time.thread_time()
    for step in range(2 * args.steps + 2 * BLOCK):
        with_media = step // BLOCK % 2 == 1
        sample = run.sample if with_media else nothing
        data = None if picture is None else picture()
        began = time.perf_counter()
        with run.step(step):
            work()
            run.log({"loss": 1.0})
            called, faulted, before = time.perf_counter(), _faults(), time.thread_time()
            for at, text in enumerate(rows):
                sample(prompt=f"question {at} of {step}", completion=text, reward=0.5, finish_reason="stop")
            if with_media and picture is not None:
                run.log({"val/image": stepscope.Image(data, copy=args.image != "kept")})
            cpu, ended = time.thread_time() - before, time.perf_counter()
        if step >= 2 * BLOCK:
            whole[with_media].append(time.perf_counter() - began)
            spent[with_media].append(cpu)
            if with_media:
                clock.append(ended - called)
                faults += _faults() - faulted
    threads = (time.process_time() - time.thread_time() - process) / len(clock)
    run.finish(timeout=120)
    counts = run.outcomes.snapshot()
    off, on = (statistics.median(whole[each]) for each in (False, True))
    means = [statistics.mean(whole[each]) for each in (False, True)]
    return {
        "image": args.image,
        "samples": args.samples,
        "work": args.work,
        "call_cpu_ms": _ms(statistics.median(spent[True])),
        "call_cpu_mean_ms": _ms(statistics.mean(spent[True])),
        "control_cpu_ms": _ms(statistics.median(spent[False])),
        "page_faults": round(faults / len(clock)),
        "call_clock_ms": _ms(statistics.median(clock)),
        "call_clock_p99_ms": _ms(sorted(clock)[int(len(clock) * 0.99)]),
        "percent_of_step": round(100 * statistics.median(spent[True]) / (args.ms / 1e3), 2),
        "step_without_ms": _ms(off),
        "step_with_ms": _ms(on),
        "step_median_percent": round(100 * (on / off - 1), 2),
        "step_mean_percent": round(100 * (means[1] / means[0] - 1), 2),
        "other_threads_ms": _ms(threads),
        "steps_with": len(clock),
        "dropped_images": sum(count for name, count in counts.items() if name.startswith("dropped/event")),
        "dropped_rows": sum(count for name, count in counts.items() if name.startswith("dropped/log")),
        "load": round(os.getloadavg()[0], 1),
    }


def _faults() -> int:
    """How often the calling thread got a page of memory."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


def main() -> None:
    """Measure one case and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", choices=("array", "kept", "cuda", "none"), default="array")
    parser.add_argument("--size", default="1080x1920")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--characters", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1000, help="steps with media; as many are without")
    parser.add_argument("--ms", type=float, default=50.0)
    parser.add_argument("--work", choices=("waits", "computes", "cuda"), default="waits")
    with tempfile.TemporaryDirectory() as home:
        print(json.dumps(measure(parser.parse_args(), home)), flush=True)


if __name__ == "__main__":
    main()
