"""What an image in every step adds to a step of 50 ms: the call itself, the step, and the encoder's processor time."""

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np

import stepscope

BLOCK = 20
"""Steps of one turn; turns with and without an image follow each other."""


def photo(height: int, width: int) -> np.ndarray:
    """A picture as a camera takes it: smooth, with edges and a little noise."""
    chance = np.random.default_rng(7)
    y, x = np.mgrid[0:height, 0:width]
    base = 128 + 60 * np.sin(x / 97) + 50 * np.cos(y / 61) + 40 * ((x // 120 + y // 90) % 2)
    layers = np.stack([base, base * 0.8 + 20, 255 - base], axis=-1)
    return np.clip(layers + chance.normal(0, 3, layers.shape), 0, 255).astype(np.uint8)


def sleeping(seconds: float) -> Callable[[], None]:
    """A step that waits for a device: the processor is free."""
    return lambda: time.sleep(seconds)


def computing(seconds: float) -> Callable[[], None]:
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
    return lambda: hashlib.pbkdf2_hmac("sha256", b"x", b"y", wanted) and None


def measure(work: Callable[[], None], image: np.ndarray, steps: int, home: str) -> None:
    """Alternate turns with and without an image, and print what they took."""
    run = stepscope.init(home=home, probes=False, otel=False, quiet=True, disk_quota=64 * 1024**3)
    took: dict[bool, list[float]] = {True: [], False: []}
    calls: list[float] = []
    spent: list[float] = []
    logged = 0
    for step in range(2 * steps + 2 * BLOCK):
        with_image = step // BLOCK % 2 == 1
        began = time.perf_counter()
        work()
        run.log({"loss": 1.0}, step=step)
        if with_image:
            image[:2] = np.roll(image[:2], 1)  # another picture each time
            called, before = time.perf_counter(), time.thread_time()
            run.log({"val/image": stepscope.Image(image)}, step=step)
            spent.append(time.thread_time() - before)
            calls.append(time.perf_counter() - called)
            logged += 1
        if step >= 2 * BLOCK:
            took[with_image].append(time.perf_counter() - began)
    seconds = sum(run.overhead._seconds.get(part, 0.0) for part in ("media",))
    run.finish(timeout=60)
    counts = run.outcomes.snapshot()
    dropped = sum(count for name, count in counts.items() if name.startswith("dropped/event"))
    off, on = (statistics.median(took[each]) * 1e3 for each in (False, True))
    means = [statistics.mean(took[each]) * 1e3 for each in (False, True)]
    print(f"  step without: median {off:.2f} ms, mean {means[0]:.2f} ms; with: {on:.2f} ms, {means[1]:.2f} ms")
    print(f"  added: median {100 * (on / off - 1):+.2f} %, mean {100 * (means[1] / means[0] - 1):+.2f} %")
    ordered = sorted(calls)
    middle, late = ordered[len(ordered) // 2] * 1e3, ordered[int(len(ordered) * 0.99)] * 1e3
    own = statistics.median(spent) * 1e3
    print(f"  call: median {middle:.2f} ms, 99th of 100 {late:.2f} ms; {own:.2f} ms of the loop's own processor time")
    written = max(logged - dropped, 1)
    each = (
        f"{seconds / written * 1e3:.0f} ms of processor time and {run.flusher.blob_bytes / written / 1e6:.2f} MB each"
    )
    print(f"  {logged} logged, {dropped} dropped; {each}")


def main() -> None:
    """Measure both kinds of step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=320)
    parser.add_argument("--ms", type=float, default=50.0)
    parser.add_argument("--size", default="1080x1920")
    args = parser.parse_args()
    height, width = map(int, args.size.split("x"))
    for name, make in (("waits", sleeping), ("computes", computing)):
        with tempfile.TemporaryDirectory() as home:
            print(f"a step that {name}, {args.ms:g} ms, an image of {width} x {height}:")
            measure(make(args.ms / 1e3), photo(height, width), args.steps, home)


if __name__ == "__main__":
    main()
