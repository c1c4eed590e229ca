"""One rank of the demo's training: `python -m stepscope.demo.rank JOB`, where JOB is JSON."""

import logging
import math
import os
import signal
import socket
import sys
import time
from collections import deque
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

import stepscope
from stepscope.demo import demo_plan
from stepscope.demo.exchange import Exchange
from stepscope.demo.network import Adam, Network, accuracy_of, clipped, load, loss_of, save, spirals

Array = Any
log = logging.getLogger("demo")
PRODUCTIVE, OVERHEAD, IDLE = ({"train.bucket": word} for word in ("productive", "overhead", "idle"))


class Job(msgspec.Struct, frozen=True):
    """The arguments of a rank."""

    home: str
    run: str
    rank: int
    steps: int
    sockets: list[int]
    checkpoint: str
    restarts: int


class Training:
    """One rank of the training."""

    def __init__(self, job: Job, run: stepscope.Run) -> None:
        self._job, self._run = job, run
        self._plan = demo_plan.Plan(job.steps)
        self._longest_load = 0.0
        self._usual: deque[float] = deque(maxlen=24)
        """How long steps took before one rank is slow."""
        self._config = self._plan.config
        data = self._config["data"]
        self._points, self._labels = spirals(data["points"], seed=1)
        self._network = Network(self._config["model"]["layers"], self._config["seed"])
        self._adam = Adam(len(self._network.vector))
        peers = [socket.socket(fileno=number) for number in job.sockets]
        self._exchange = Exchange(job.rank, peers)

    def train(self) -> None:
        """Train from the last checkpoint, or from the beginning, to the end."""
        start = self._resume()
        for step in range(start, self._job.steps):
            with self._run.step(step):
                loss = self._step(step)
                if self._job.rank == 0:
                    self._validate_and_save(step)
            if self._job.rank == 0:
                print_progress(step + 1, loss)

    def _resume(self) -> int:
        path = Path(self._job.checkpoint)
        if not path.exists():
            log.info("no checkpoint: training from the beginning")
            return 0
        with self._run.span("train.checkpoint.load", **OVERHEAD):
            start = load(path, self._network, self._adam)
        self._run.event("train.checkpoint.loaded", {"step": start - 1})
        log.info("resuming at step %d from %s", start, path.name)
        return start

    def _step(self, step: int) -> float:
        began = time.perf_counter()
        points, labels = self._load(step)
        with self._part("train.forward", batch_size=len(points)):
            scores = self._network.forward(points)
            loss, error = loss_of(scores, labels)
        if self._goes_wrong(self._plan.crash, step) and not self._job.restarts:
            log.warning("memory is nearly full")
            self._run.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        slow, straggler = self._plan.straggler
        with self._part("train.backward"):
            self._network.backward(error)
            if step in slow and self._job.rank == straggler:
                self._straggle()
        with self._run.span("train.all_reduce", **OVERHEAD):
            gradient = self._exchange.average(self._network.gradient)
        norm, rate = self._update(gradient, step)
        seconds = time.perf_counter() - began
        if step < slow.start:
            self._usual.append(seconds)
        values = {"loss": loss, "grad_norm": norm, "lr": rate, "accuracy": accuracy_of(scores, labels)}
        self._run.log({**values, "samples_per_second": len(points) / seconds}, category="trainer")
        self._watch(loss, seconds)
        return loss

    def _goes_wrong(self, planned: tuple[int, int], step: int) -> bool:
        return planned == (step, self._job.rank)

    def _part(self, name: str, **attrs: Any) -> Any:
        return _Paced(self._run.span(name, **attrs, **PRODUCTIVE), demo_plan.PACE[name])

    def _load(self, step: int) -> tuple[Array, Array]:
        began = time.perf_counter()
        with _Paced(self._run.span("train.data_load", **IDLE), demo_plan.PACE["train.data_load"]):
            draw = np.random.default_rng((self._config["seed"], self._job.rank, step))
            chosen = draw.integers(0, len(self._points), self._config["batch_size"])
            points, labels = self._points[chosen], self._labels[chosen]
            if self._goes_wrong(self._plan.slow_batch, step):
                log.warning("shard %d is slow to read", step)
                # On a busy machine loading is slow now and then: what is planted must stand out there too.
                time.sleep(max(demo_plan.SLOW_BATCH_SECONDS, 8 * self._longest_load))
            if self._goes_wrong(self._plan.spike, step):
                points, labels = points * 25, 1 - labels
            if self._goes_wrong(self._plan.dropout, step):
                points = points.copy()
                points[0] = np.nan
        self._longest_load = max(self._longest_load, time.perf_counter() - began)
        return points, labels

    def _straggle(self) -> None:
        """Be slow; on a busy machine every rank is so now and then, and what is planted must stand out there too."""
        delayed = median(self._usual) - sum(demo_plan.PACE.values()) if self._usual else 0.0
        time.sleep(max(demo_plan.STRAGGLER_SECONDS, 2 * delayed))

    def _update(self, gradient: Array, step: int) -> tuple[float, float]:
        """Take the step, unless the gradient is no number; the length of the gradient and the learning rate."""
        settings = self._config["optimizer"]
        decay = 0.1 + 0.9 * math.cos(step / self._job.steps * math.pi / 2)
        rate = settings["lr"] * min(1.0, (step + 1) / settings["warmup"]) * decay
        with self._run.span("train.optimizer_step", **PRODUCTIVE):
            limited, norm = clipped(gradient, settings["clip"])
            if math.isfinite(norm):
                self._adam.update(self._network.vector, limited, rate)
            else:
                log.error("the gradient is not a number: update skipped")
        return norm, rate

    def _watch(self, loss: float, seconds: float) -> None:
        if not math.isfinite(loss):
            self._run.alert("not a number", "ERROR", "trainer/loss is NaN")
        elif loss > 3:
            self._run.alert("loss spike", "ERROR", f"loss {loss:.3g}", loss=loss)
        if seconds > 0.3:
            self._run.alert("slow step", "WARN", f"{seconds:.2f} s", seconds=seconds)

    def _validate_and_save(self, step: int) -> None:
        """Validate and save now and then."""
        if step % self._plan.validate_every == self._plan.validate_every - 1:
            with self._run.span("train.evaluate", **OVERHEAD):
                points, labels = spirals(2000, seed=2)
                scores = self._network.forward(points)
                loss, accuracy = loss_of(scores, labels)[0], accuracy_of(scores, labels)
            self._run.log({"loss": loss, "accuracy": accuracy}, category="evaluator")
            log.info("validation: loss %.4f, accuracy %.3f", loss, accuracy)
        if step % self._plan.checkpoint_every == self._plan.checkpoint_every - 1:
            with self._run.span("train.checkpoint.save", **OVERHEAD) as span:
                size = save(Path(self._job.checkpoint), self._network, self._adam, step)
                span.set_attribute("train.checkpoint.size", size)
            self._run.event("train.checkpoint.saved", {"step": step, "bytes": size})


def print_progress(done: int, value: float) -> None:
    """Report the progress to the launcher."""
    sys.stdout.write(f"{done} {value:.6g}\n")
    sys.stdout.flush()


class _Paced:
    """A span that lasts a little longer than its work."""

    def __init__(self, span: Any, seconds: float) -> None:
        self._span, self._seconds = span, seconds

    def __enter__(self) -> Any:
        return self._span.__enter__()

    def __exit__(self, *raised: Any) -> None:
        if raised[0] is None:
            time.sleep(self._seconds)
        self._span.__exit__(*raised)


def main(text: str) -> int:
    """Do one job."""
    job = msgspec.json.decode(text, type=Job)
    log.setLevel(logging.INFO)
    config = demo_plan.Plan(job.steps).config
    run = stepscope.init(
        project="demo", name="two-spirals", config=config, run_id=job.run, home=job.home, probe_interval=1.0
    )
    with run:
        Training(job, run).train()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
