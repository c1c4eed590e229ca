"""Draw real trainings from seeds, healthy ones and such with a fault, and diagnose them by the hundred.

`python -m benchmarks.zoo.real.farm train 0 400 --to FOLDER` trains healthy ones, with `--healthy FOLDER` the same with
a fault, and `python -m benchmarks.zoo.real.farm judge --to FOLDER` diagnoses what was kept. A healthy training is kept
if a measure that need not be logged says that it learnt, that it did not fall back, and that what is held out did not
suffer.
"""

import argparse
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import Any

import torch

from benchmarks.zoo.real.farm.learners import MADE, Knobs, Supervised
from benchmarks.zoo.real.farm.names import RUN_NAMES, Style, names_of
from benchmarks.zoo.real.farm.tasks import TASKS
from benchmarks.zoo.real.tape import Tape, compacted, load, save

PROBES = 18
PART = 5
"""So many seeds are kept in a file."""


@dataclass(slots=True)
class Plan:
    """What was drawn for a training."""

    seed: int
    made_of: str
    steps: int
    planned: int
    """The steps that the schedule was made for; more than `steps` if the training was stopped."""
    batch: int
    optimizer: str
    rate: float
    schedule: str
    decay: float
    warm: int
    clip: float
    accumulate: int
    scale: float
    average: bool
    mode: str
    """How values of training are logged: `now`, the `mean` since the last time, or once an `epoch`."""
    every: int
    look: int
    style: Style
    keys: tuple[str, ...]
    spans: bool
    saves: int
    stages: bool
    early: bool
    numbered: str
    """What is logged as the step: `step`, `epoch` or `samples`."""
    config: dict[str, Any] = field(default_factory=dict)


def draw(seed: int) -> tuple[Plan, Any]:
    """Draw a plan and what learns."""
    d = Random(seed)
    torch.manual_seed(seed)
    made_of = d.choice([*TASKS, *MADE, *MADE])
    learner = MADE[made_of](d) if made_of in MADE else Supervised(TASKS[made_of](d))
    supervised = made_of in TASKS
    accumulate = d.choice([1, 1, 1, 1, 2, 4]) if supervised else 1
    batch = d.choice([4, 8, 16, 32, 32, 64, 64, 128, 256]) if supervised else d.choice([32, 64, 128])
    if made_of in ("views", "gan"):
        batch = max(batch, 16)
    room = 350 / (0.7 + batch / 110) if supervised else 900
    most = min(3000.0, room / (learner.cost * accumulate))
    steps = int(math.exp(d.uniform(math.log(min(100, most * 0.7)), math.log(most))))
    optimizer = d.choice(["adam", "adam", "adamw", "adamw", "sgd", "rmsprop"]) if supervised else "adam"
    rate = learner.rate * math.exp(d.uniform(-0.9, 0.6)) * min(1.0, (batch / 32) ** 0.5)
    rate *= {"sgd": 12, "rmsprop": 0.5}.get(optimizer, 1)
    schedules = ["constant", "step", "cosine", "one_cycle", "restarts", "inverse", "plateau", "linear", "exponential"]
    schedule = d.choice(schedules) if supervised else d.choice(["constant", "constant", "linear", "cosine"])
    few = learner.problem.few if supervised else 0
    epoch = max(1, few // (batch * accumulate)) if few else 0
    mode = d.choice(["now", "now", "mean", "epoch"])
    if not epoch or not 8 <= steps / epoch <= 200:
        mode = d.choice(["now", "now", "mean"])
    every = (
        epoch
        if mode == "epoch"
        else d.choice([e for e in (1, 1, 1, 2, 5, 10, 20, 25, 50) if steps / e >= 25 or e == 1])
    )
    look = (
        epoch
        if mode == "epoch" or (d.random() < 0.3 and 1 < epoch < steps / 4)
        else max(every, steps // d.randint(5, 25))
    )
    style = names_of(d, learner.sort)
    if style.name == "megatron" and made_of not in ("language", "masked", "reversal"):
        style.exact, style.exact_held = {"lr": "learning-rate", "grad_norm": "grad-norm"}, {}  # no loss of words
    keys = tuple(key for key in style.keys if key in style.always or d.random() < 0.6)
    numbered = d.choice(["step", "epoch"]) if mode == "epoch" else d.choice(["step"] * 9 + ["samples"])
    plan = Plan(
        seed, made_of, steps, steps * d.choice([1, 1, 1, 2, 3]), batch, optimizer, rate, schedule,
        d.choice([0.0, 0.01, 0.1]), d.choice([0, 0, steps // 20, steps // 10]),
        d.choice([math.inf, math.inf, 1.0, 5.0]), accumulate,
        2.0 ** d.randint(10, 16) if supervised and d.random() < 0.1 else 0.0,
        supervised and d.random() < 0.12, mode, every, look, style, keys, d.random() < 0.55,
        d.choice([0, 0, 0, max(steps // 6, 1)]), supervised and d.random() < 0.06, d.random() < 0.1, numbered,
    )  # fmt: skip
    if d.random() < 0.6:
        plan.config = _config(d, plan, getattr(getattr(learner, "problem", None), "config", {}))
    return plan, learner


def _config(d: Random, plan: Plan, more: dict[str, Any]) -> dict[str, Any]:
    rate = round(plan.rate, 6)
    kept = {"batch_size": plan.batch, "optimizer": plan.optimizer, "seed": plan.seed, "model": plan.made_of}
    kept |= {d.choice(["lr", "learning_rate"]): rate} | (more if d.random() < 0.5 else {})
    kept |= {d.choice(["max_steps", "total_steps", "num_steps"]): plan.planned} if plan.numbered == "step" else {}
    if plan.clip < math.inf:
        kept[d.choice(["max_grad_norm", "grad_clip", "clip"])] = plan.clip
    return {"train": kept} if d.random() < 0.2 else kept


class Training:
    """A drawn training in progress; a fault changes its parts."""

    def __init__(self, plan: Plan, learner: Any, twin: int = 0) -> None:
        self.plan, self.learner, self.net = plan, learner, learner.net
        torch.manual_seed(plan.seed * 1009 + twin)
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}
        beta = {"betas": (0.5, 0.99)} if learner.sort == "gan" else {}
        make = lambda group: (  # noqa: E731
            torch.optim.SGD(group, plan.rate, momentum=0.9, weight_decay=plan.decay * 0.01)
            if plan.optimizer == "sgd"
            else kind[plan.optimizer](
                group, plan.rate, weight_decay=plan.decay if plan.optimizer == "adamw" else 0, **beta
            )
        )
        self.knobs = Knobs([make(each) for each in learner.groups], plan.batch, plan.clip, plan.accumulate, plan.scale)
        self.make = make
        self.faster, self.offset, self.reached, self.frozen_average = 1.0, 0, 1.0, False
        """Factors on the rate and its schedule, the factor that a plateau has led to, and whether the average stays."""
        self.acted = 0
        """The step at which a fault began to act."""
        self.each: Callable[[Training, int], None] | None = None
        self.truths: list[float] = []
        self.hoard: list[Any] = []
        self.best, self.since = math.inf, 0
        self.mean = {key: each.clone() for key, each in self.net.state_dict().items()} if plan.average else {}
        self.first = {key: each.clone() for key, each in self.net.state_dict().items()}

    def factor(self, step: int) -> float:
        """The learning rate at a step, as a share of its peak."""
        plan, at = self.plan, step - self.offset
        if at < plan.warm:
            return (at + 1) / plan.warm
        done = min(1.0, (at - plan.warm) / max(plan.planned - plan.warm, 1))
        match plan.schedule:
            case "step":
                return 0.3 ** int(done * 3)
            case "cosine":
                return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))
            case "one_cycle":
                return 0.05 + 0.95 * (done / 0.3 if done < 0.3 else 0.5 * (1 + math.cos(math.pi * (done - 0.3) / 0.7)))
            case "restarts":
                return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (done * 3 % 1)))
            case "inverse":
                return (max(plan.warm, 20) / max(at, plan.warm, 20)) ** 0.5
            case "plateau":
                return self.reached
            case "linear":
                return 1 - 0.98 * done
            case "exponential":
                return 0.05**done
        return 1.0

    def looked(self) -> dict[str, float]:
        """Evaluate, perhaps the average too, and slow down on a plateau."""
        values = _numbers(self.learner.look(self.knobs))
        now = values.get("loss", -values.get("reward", math.inf))
        self.since = 0 if now < self.best else self.since + 1
        self.best = min(self.best, now)
        if self.plan.schedule == "plateau" and self.since >= 3:
            self.reached, self.since = self.reached / 2, 0
        if self.mean:
            kept = {key: each.clone() for key, each in self.net.state_dict().items()}
            self.net.load_state_dict(self.mean)
            values["ema_loss"] = float(self.learner.look(self.knobs)["loss"])
            self.net.load_state_dict(kept)
        return values

    def follow(self) -> None:
        """Let the average follow the weights."""
        with torch.no_grad():
            for key, each in self.net.state_dict().items():
                if each.is_floating_point() and not self.frozen_average:
                    self.mean[key].lerp_(each, 0.02)
                elif not each.is_floating_point():
                    self.mean[key].copy_(each)

    def run(self, tape: Tape, at: int = -1, act: "Callable[[Training], None] | None" = None) -> None:
        """Train, and record what a user would log; a fault acts at a step."""
        plan, k = self.plan, self.knobs
        if plan.spans:
            k.span = tape.span
        sums: dict[str, list[float]] = {}
        looks = 0
        for step in range(plan.steps):
            if step % max(plan.steps // PROBES, 1) == 0:
                state = torch.get_rng_state()
                self.truths.append(self.learner.truth())
                torch.set_rng_state(state)
            if step == at and act is not None:
                self.acted = step
                act(self)
            if self.each is not None and step >= at:
                self.each(self, step)
            rate = plan.rate * self.factor(step)
            for optimizer in k.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = rate * self.faster
            level = step * 3 // plan.steps
            if plan.stages and level and not (k.alter and at >= 0):
                k.alter = _harder(level)
            tape._step = step
            tape._reading()
            begun = time.perf_counter()
            with tape.step(step) if plan.spans else _nothing():
                values = _numbers(self.learner.step(k))
                if self.mean:
                    self.follow()
                values |= {"lr": rate * self.faster, "step_time": time.perf_counter() - begun}
                for key, value in values.items():
                    sums.setdefault(key, []).append(value)
                logged: dict[str, float] = {}
                if step % plan.every == plan.every - 1 or (plan.every == 1):
                    logged = self._told(values, sums, step)
                    sums.clear()
                if step % plan.look == plan.look - 1:
                    with tape.span("train.evaluate") if plan.spans else _nothing():
                        found = self.looked()
                    looks += 1
                    held = {
                        plan.style.held(key): value for key, value in found.items() if plan.style.knows(key, plan.keys)
                    }
                    logged |= held
                if plan.saves and step % plan.saves == plan.saves - 1:
                    saving = tape.span("train.checkpoint") if plan.spans else _nothing()
                    with saving, TemporaryFile() as file:
                        torch.save(self.net.state_dict(), file)
                if logged:
                    shown = {"epoch": looks, "samples": (step + 1) * plan.batch}.get(plan.numbered, step)
                    tape.log(logged, shown)
            if plan.early and self.since >= 4 and at < 0:
                break

    def _told(self, values: dict[str, float], sums: dict[str, list[float]], step: int) -> dict[str, float]:
        plan = self.plan
        if plan.mode != "now":
            values = values | {key: sum(each) / len(each) for key, each in sums.items() if key not in ("lr", "epsilon")}
        found = {plan.style.train(key): value for key, value in values.items() if plan.style.knows(key, plan.keys)}
        names = RUN_NAMES
        few = self.learner.problem.few if isinstance(self.learner, Supervised) else 0
        if few and "epoch" in plan.keys:
            done = step * plan.batch * plan.accumulate / few
            found[plan.style.epoch] = done if plan.seed % 2 else int(done)
        more = {"loss_scale": self.knobs.scale, "skipped": self.knobs.skipped} if self.knobs.scale else {}
        if plan.stages:
            more["stage"] = float(step * 3 // plan.steps)
        if "throughput" in plan.keys:
            more["throughput"] = plan.batch / max(values["step_time"], 1e-9)
        if "memory" in plan.keys:
            more["memory"] = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
        if "weight_norm" in plan.keys:
            more["weight_norm"] = float(sum(float(each.detach().norm()) ** 2 for each in self.net.parameters())) ** 0.5
        return found | {names[key][plan.seed % len(names[key])]: value for key, value in more.items()}


def _harder(level: int) -> Callable[[Any], Any]:
    def alter(batch: Any) -> Any:
        first = batch[0]
        return (first + 0.4 * level * torch.randn_like(first), *batch[1:]) if first.is_floating_point() else batch

    return alter


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {key: float(each.detach() if isinstance(each, torch.Tensor) else each) for key, each in values.items()}


@contextmanager
def _nothing():  # type: ignore[no-untyped-def]
    yield


def is_healthy(training: Training) -> str:
    """Why a training is not healthy by its own measure; empty if it is."""
    found, learner = training.truths, training.learner
    if len(found) < 12 or not all(map(math.isfinite, found)):
        return "not finite or stopped too early"
    end, start = statistics.mean(found[-3:]), found[0]
    smooth = [statistics.mean(found[max(at - 2, 0) : at + 1]) for at in range(len(found))]
    best = min(smooth)
    if isinstance(learner, Supervised):
        guess = learner.problem.guess
        chance = min(start, guess) if math.isfinite(guess) else start
        gain, wanted = chance - end, 0.12 * abs(chance) if chance else 0.1
    elif learner.sort == "gan":
        chance, gain, wanted = start, start - end, 0.5 * start
    else:
        chance, gain, wanted = start, start - end, 0.3 * (start - learner.goal)
    if gain < wanted:
        return "did not learn"
    if end - best > 0.1 * (chance - best):
        return "fell back at the end"
    fall = max(each - min(smooth[: at + 1]) for at, each in enumerate(smooth))
    if fall > (0.15 if isinstance(learner, Supervised) else 0.3) * (max(start, chance) - best):
        return "fell back on its way"
    return ""


def trained(seed: int) -> tuple[Tape, Training, str]:
    """Train what a seed draws."""
    plan, learner = draw(seed)
    tape, training = Tape(plan.config), Training(plan, learner)
    training.run(tape)
    return tape, training, is_healthy(training)


def sow(first: int, last: int, to: Path, healthy: Path | None, jobs: int) -> None:
    """Train the seeds and keep what is as it should be; those that are healthy in a folder are given a fault."""
    known: dict[str, Tape] = {}
    for path in sorted(healthy.glob("*.xz")) if healthy else ():
        known |= load(path)
    beside = {int(name.split(".")[0]): tape for name, tape in known.items()} if healthy else None
    thrown: Counter[str] = Counter()
    torch.set_num_threads(1)
    with get_context("fork").Pool(jobs) as pool:
        cuts = [(at, min(at + PART, last)) for at in range(first, last, PART)]
        parts = [(a, b, to, None if beside is None else _between(beside, a, b)) for a, b in cuts]
        for some in pool.imap_unordered(_part, parts, chunksize=1):
            thrown += some
    print(dict(thrown))


def _between(tapes: dict[int, Tape], first: int, last: int) -> dict[int, Tape]:
    return {seed: tape for seed, tape in tapes.items() if first <= seed < last}


def _part(task: tuple[int, int, Path, dict[int, Tape] | None]) -> Counter[str]:
    """Train some seeds, a line for each, and count what became of them."""
    from benchmarks.zoo.real.farm.faults import spoiled

    first, last, to, beside = task
    kept: dict[str, Tape] = {}
    count: Counter[str] = Counter()
    for seed in range(first, last):
        if beside is not None and seed not in beside:
            continue
        begun = time.perf_counter()
        name, tape, why = _named(seed) if beside is None else spoiled(seed, beside[seed])
        count[why or "kept"] += 1
        if tape is not None and not why:
            kept[name] = compacted(tape, timed=True)
        print(f"{name}: {why or 'kept'} ({time.perf_counter() - begun:.1f} s)", flush=True)
    save(to / f"{'healthy' if beside is None else 'faults'}_{first:06d}.xz", kept)
    return count


def _named(seed: int) -> tuple[str, Tape | None, str]:
    tape, training, why = trained(seed)
    return f"{seed}.{training.plan.made_of}.{training.plan.style.name}", tape, why


def judge(folder: Path, first: int, last: int, to: Path | None) -> None:
    """Diagnose what was kept and print what is wrong: alarms in healthy trainings, faults that are not named."""
    from benchmarks.zoo.real.evaluate import Score, diagnosed

    total, found = Score(), {}
    for path in sorted(folder.glob("*.xz")):
        for name, tape in load(path).items():
            if first <= int(name.split(".")[0]) < last:
                findings = diagnosed(tape)
                total.add(name, tape.truth, findings)
                found[name] = [f"{each.severity} {each.kind}@{each.step} {each.text}" for each in findings]
    print("\n".join(total.notes))
    print(total)
    if to is not None:
        to.write_text(json.dumps(found, indent=1))


def main() -> None:
    """Train or judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "judge"])
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=10**9)
    parser.add_argument("--to", type=Path, default=Path("build/farm"))
    parser.add_argument("--healthy", type=Path, help="give those that are kept here a fault")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.what == "train":
        given.to.mkdir(parents=True, exist_ok=True)
        sow(given.first, given.last, given.to, given.healthy, given.jobs)
    else:
        judge(given.to, given.first, given.last, given.json)
