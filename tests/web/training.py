"""A program that trains nothing on some ranks: known values at known steps, and things that go wrong on purpose."""

import logging
import math
import os
import random
import sys
import time

began, passed = int(os.environ.get("TRAINING_BEGAN", "0")), 0
"""The clock of this program: what it does takes as long as it says, however busy the machine is."""


def _now() -> int:
    global passed
    passed += 500
    return began + passed


if began:
    time.time_ns = time.monotonic_ns = _now
    os.environ["STEPSCOPE_PURE_PYTHON"] = "1"  # the compiled calls read the clock themselves

import stepscope  # noqa: E402 - it keeps the clock that it finds

SPIKE, SPIKE_RANK = 120, 2
NAN, NAN_RANK = 200, 1
SLOW, SLOW_RANK = 160, 3
CRASH, RESUME, STEPS = 250, 230, 300
log = logging.getLogger("train")
log.setLevel(logging.INFO)


def work(seconds: float) -> None:
    """Let time pass."""
    global passed
    if began:
        passed += int(seconds * 1e9)
    else:
        time.sleep(seconds)


def launch(ranks: int, first: int, last: int, pause: float) -> None:
    """Train on some ranks at once, each a process of its own; one import serves all of them."""
    for rank in range(ranks):
        if os.fork() == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
            main(rank, first, last, pause)
            os._exit(0)
    for _ in range(ranks):
        os.wait()


def main(rank: int, first: int, last: int, pause: float) -> None:
    """Train from one step to another."""
    noise = random.Random(rank)
    config = {"lr": 3e-4, "model": {"name": "tiny", "layers": 4, "hidden": 256}, "batch_size": 32, "seed": 7}
    run = stepscope.init(project="web", name="four-ranks", config=config)
    run.event("phase", {"text": "warmup done"}, step=first + 20)
    for number in range(first, last):
        with run.step(number):
            loss = one_step(run, number, rank, noise, pause)
        if number % 50 == 0:
            log.info("step %d loss %.3f", number, loss)
    if last < STEPS:
        run.flush()
        os._exit(1)
    run.finish()


def one_step(run: stepscope.Run, number: int, rank: int, noise: random.Random, pause: float) -> float:
    """Do one step and log it."""
    with run.span("train.data_load", shard=number % 8):
        work(2.5 if (number, rank) == (SLOW, SLOW_RANK) else pause / 4)
    with run.span("train.forward"):
        with run.span("attention"):
            work(pause / 4)
        with run.span("mlp"):
            work(pause / 8)
    with run.span("train.backward"):
        work(pause / 2)
    with run.span("all_reduce"):
        # The other ranks wait for the one that is late, and have longer spans than it has.
        work(2.55 if number == SLOW and rank != SLOW_RANK else pause / 8)
    loss = 0.4 + 2.2 * math.exp(-number / 90) + noise.gauss(0, 0.03)
    if (number, rank) == (SPIKE, SPIKE_RANK):
        loss = 41.5
        log.error("corrupt shard %d", number % 8)
        run.alert("loss spike", "ERROR", f"loss {loss:.3g}, usually below 3", loss=loss)
    if (number, rank) == (NAN, NAN_RANK):
        run.alert("not a number", "ERROR", "trainer/margin is NaN")
    margin = math.nan if (number, rank) == (NAN, NAN_RANK) else 1 + number / 100 + noise.gauss(0, 0.1)
    norm = abs(noise.gauss(1, 0.2)) * (30 if (number, rank) == (SPIKE, SPIKE_RANK) else 1)
    rate = 3e-4 * min(1.0, number / 40) * (0.5 + 0.5 * math.cos(number / STEPS * math.pi))
    run.log(
        {"loss": loss, "grad_norm": norm, "lr": rate, "margin": margin, "tokens": number * 4096}, category="trainer"
    )
    if number % 10 == 0:
        run.log({"accuracy": 1 - math.exp(-number / 120) + noise.gauss(0, 0.01)}, category="evaluator")
        run.log_system({"gpu_util": 92 + noise.gauss(0, 3), "gpu_memory_gib": 61.0 + number / 100})
    return loss


if __name__ == "__main__":
    launch(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
