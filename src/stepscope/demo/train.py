"""The demo's training loop, with a spike, a slow batch and a NaN planted in it."""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stepscope
from stepscope.demo.model import Network, batches, loss_of, spirals

log = logging.getLogger("demo")
log.setLevel(logging.INFO)

CONFIG: dict[str, Any] = {"hidden": 64, "batch_size": 256, "lr": 0.4, "steps": 400, "seed": 7}
SLOW_BATCH, SPIKE, NAN = 130, 210, 300
"""The steps at which something goes wrong on purpose."""


def train(home: Path | None, progress: Callable[[int, int, float], None]) -> stepscope.Run:
    """Train the network under a run and return it, finished."""
    run = stepscope.init(project="demo", name="two-spirals", config=CONFIG, home=home)
    points, labels = spirals(4000, seed=1)
    network = Network.create(CONFIG["hidden"], CONFIG["seed"])
    stream = batches(points, labels, CONFIG["batch_size"], CONFIG["seed"])
    steps = CONFIG["steps"]
    with run:
        for step in range(steps):
            with run.step(step):
                loss = _step(run, network, stream, step)
                if step % 50 == 49:
                    _validate(run, network)
                if step % 100 == 99:
                    _checkpoint(run, network, step)
            progress(step + 1, steps, loss)
    return run


def _step(run: stepscope.Run, network: Network, stream: Iterator[Any], step: int) -> float:
    began = time.perf_counter()
    with run.span("train.data_load", **{"train.bucket": "idle"}):
        points, labels = next(stream)
        if step == SLOW_BATCH:
            time.sleep(0.4)
        if step == SPIKE:
            points = points * 40 + 7  # a corrupt shard
    with run.span("train.forward", batch_size=len(points), **{"train.bucket": "productive"}):
        scores, hidden = network.forward(points)
        loss, error = loss_of(scores, labels)
    with run.span("train.backward", **{"train.bucket": "productive"}):
        network.backward(points, hidden, error)
    norm = network.gradient_norm()
    with run.span("train.optimizer_step", **{"train.bucket": "productive"}):
        rate = CONFIG["lr"] * min(1.0, (step + 1) / 20)
        network.update(rate if norm < 2 else rate / norm)
    margin = np.log(np.zeros(1)) * 0 if step == NAN else np.abs(scores).mean()
    run.log(
        {
            "loss": loss,
            "grad_norm": norm,
            "lr": rate,
            "margin": margin,
            "accuracy": np.mean((scores > 0) == labels),
        },
        category="trainer",
    )
    _watch(run, loss, float(np.mean(margin)), time.perf_counter() - began)
    return loss


def _watch(run: stepscope.Run, loss: float, margin: float, seconds: float) -> None:
    if loss > 2:
        run.alert("loss spike", "ERROR", f"loss {loss:.3g}, usually below 1", loss=loss)
    if not np.isfinite(margin):
        run.alert("not a number", "ERROR", "trainer/margin is NaN")
    if seconds > 0.2:
        run.alert("slow step", "WARN", f"{seconds:.2f} s", seconds=seconds)


def _validate(run: stepscope.Run, network: Network) -> None:
    with run.span("train.evaluate", **{"train.bucket": "overhead"}):
        points, labels = spirals(1000, seed=2)
        scores, _ = network.forward(points)
        loss, _ = loss_of(scores, labels)
        accuracy = float(np.mean((scores > 0) == labels))
    run.log({"loss": loss, "accuracy": accuracy}, category="evaluator")
    log.info("validation: loss %.4f, accuracy %.3f", loss, accuracy)


def _checkpoint(run: stepscope.Run, network: Network, step: int) -> None:
    with run.span("train.checkpoint.save", **{"train.bucket": "overhead"}) as span:
        size = sum(weight.nbytes for weight in network.weights)
        span.set_attribute("train.checkpoint.size", size)
    run.event("train.checkpoint.saved", {"step": step, "bytes": size})
