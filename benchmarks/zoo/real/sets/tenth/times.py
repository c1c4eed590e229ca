"""Time and machines of the tenth set: loaders, ranks, memory, checkpoints and stalls in trainings that learn well."""

import gc
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.tenth.tasks import F, Values, dense, learn, set_rate, waves
from benchmarks.zoo.real.tape import Tape

SLOW = "data_stall throughput_loss slow_span input_bound"
Seconds = Callable[[int], float]


def never(step: int) -> float:
    """No time at all."""
    return 0.0


def rest(seconds: float) -> None:
    """Wait so long."""
    if seconds > 0:
        time.sleep(seconds)


def work(
    tape: Tape,
    steps: int = 320,
    load: Seconds = lambda step: 0.001,
    ahead: Seconds = lambda step: 0.002,
    reduce: Seconds | None = None,
    look: int = 0,
    long: Seconds = lambda step: 0.02,
    save: int = 0,
    kept: Callable[[int], int] = lambda step: 20_000,
    idle: Seconds = never,
    says: Callable[[int, float], Values] = lambda step, took: {},
    before: Callable[[int], None] = lambda step: None,
    rows: Callable[[int], int] = lambda step: 32,
    name: str = "train_loss",
    seed: int = 301,
    every: int = 1,
    spans: bool = True,
) -> None:
    """Tell waves apart by a network, with spans of loading, the two passes, the exchange, evaluations and saves."""
    torch.manual_seed(seed)
    model = dense((32, 96, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    data, held = waves(2000, noise=0.2), waves(300, noise=0.2)
    last = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for step in range(steps):
            with tape.step(step):
                before(step)
                set_rate(optimizer, 4e-3 * (1 - step / steps))
                with tape.span("train.data_load"):
                    taken = torch.randint(0, 2000, (rows(step),))
                    x, y = data[0][taken, 0], data[1][taken]
                    rest(load(step))
                with tape.span("train.forward"):
                    loss = F.cross_entropy(model(x), y)
                    rest(ahead(step))
                if reduce is not None:
                    with tape.span("train.collective.all_reduce"):
                        rest(reduce(step))
                with tape.span("train.optimizer_step"):
                    norm = learn(optimizer, loss)
                rest(idle(step))
                known: Values = {name: loss, "grad_norm": norm} if step % every == every - 1 else {}
                if look and step % look == look - 1:
                    with tape.span("train.evaluate"), torch.no_grad():
                        rest(long(step))
                        known["eval_loss"] = F.cross_entropy(model(held[0][:, 0]), held[1])
                if save and step % save == save - 1:
                    with tape.span("train.checkpoint.save"):
                        path = Path(folder) / "last.pt"
                        torch.save({"model": model.state_dict(), "log": torch.zeros(kept(step))}, path)
                        with path.open("rb") as file:
                            os.fsync(file.fileno())
                now = time.perf_counter()
                known |= says(step, now - last)
                last = now
                if known:
                    tape.log({key: float(torch.as_tensor(value).detach()) for key, value in known.items()})
    if not spans:
        tape.rows[:] = [row for row in tape.rows if row[0] != "s"]


@healthy("tenth", config={"eval_steps": 100, "max_steps": 300})
def healthy_three_long_looks(tape: Tape) -> None:
    """Three evaluations, each of which takes as long as thirty steps."""
    work(tape, 300, look=100, long=lambda step: 0.35)


@healthy("tenth", config={"save_steps": 40, "max_steps": 320})
def healthy_saved_every_forty(tape: Tape) -> None:
    """A checkpoint each forty steps, always of the same size."""
    work(tape, 320, save=40, kept=lambda step: 2_000_000, seed=302)


@healthy("tenth", config={"bucket_by_length": True})
def healthy_steps_of_four_lengths(tape: Tape) -> None:
    """Batches are of four lengths in no order: steps take from 3 to 12 ms, from the first to the last."""
    lengths = torch.randint(0, 4, (400,), generator=torch.Generator().manual_seed(3)).tolist()
    work(tape, 400, ahead=lambda step: 0.003 * (1 + lengths[step]), seed=303, name="loss")


@healthy("tenth", config={"online": True, "window": "1 day"})
def healthy_days_and_nights(tape: Tape) -> None:
    """Learnt online from a stream whose difficulty goes with the hour: the loss rises and falls each day, for ever."""
    torch.manual_seed(304)
    model = dense((10, 32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    true = torch.randn(10)
    day = 96
    for step in range(960):
        if step == 0 or step % 7 == 0:
            true.add_(0.02 * torch.randn(10))
        with tape.step(step):
            x = torch.randn(16, 10)
            noise = 0.4 + 0.3 * torch.sin(torch.tensor(6.2832 * step / day))
            loss = F.mse_loss(model(x)[:, 0], x @ true + noise * torch.randn(16))
            learn(optimizer, loss, 5.0)
            if step % 2 == 0:
                tape.log({"progressive_loss": float(loss.detach()), "hour": step % day / 4})


@healthy("tenth", config={"max_steps": 24000, "log_interval": 200})
def healthy_for_a_very_long_time(tape: Tape) -> None:
    """Twenty-four thousand steps with a value each two hundred: most is learnt in the first of them."""
    torch.manual_seed(305)
    model = torch.nn.Linear(12, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    true = torch.randn(12)
    total = 0.0
    for step in range(24_000):
        set_rate(optimizer, 0.01 * (1 - step / 24_000) + 1e-5)
        x = torch.randn(4, 12)
        loss = F.mse_loss(model(x)[:, 0], x @ true + 0.5 * torch.randn(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
        if step % 200 == 199:
            tape.log({"train/mse": total / 200, "train/lr": optimizer.param_groups[0]["lr"]}, step)
            total = 0.0


@healthy("tenth", config={"kl_anneal": "linear", "beta_end": 1.0})
def healthy_weights_that_come_in(tape: Tape) -> None:
    """The weight of a penalty comes in along a line: the total rises by design while its parts get better."""
    torch.manual_seed(306)
    data = waves(1500, noise=0.1)[0][:, 0]
    inside, out = dense((32, 48, 8)), dense((4, 48, 32))
    optimizer = torch.optim.Adam([*inside.parameters(), *out.parameters()], lr=2e-3)
    for step in range(450):
        with tape.step(step):
            x = data[torch.randint(0, 1500, (32,))]
            middle, log = inside(x).chunk(2, 1)
            made = out(middle + (0.5 * log).exp() * torch.randn(32, 4))
            first = (made - x).square().sum(1).mean()
            second = 0.5 * (middle.square() + log.exp() - 1 - log).sum(1).mean()
            beta = min(1.0, max(0.0, (step - 50) / 300))
            loss = first + beta * second
            learn(optimizer, loss)
            values = {"elbo_loss": loss, "recon": first, "kl": second, "beta": torch.tensor(beta)}
            if step % 3 == 0:
                tape.log({key: float(value.detach()) for key, value in values.items()})


@fault("tenth", SLOW, step=160, window=15)
def loader_slow_from_the_middle(tape: Tape) -> None:
    """At step 160 the shards on the local disk end, and the others come over the network: 12 ms instead of 1."""
    work(tape, load=lambda step: 0.012 if step >= 160 else 0.001, seed=311)


@fault("tenth", SLOW, step=90, window=25)
def loader_workers_die_one_by_one(tape: Tape) -> None:
    """Of four workers one is killed at 90, one at 170 and one at 250: the wait for data grows with each."""

    def load(step: int) -> float:
        return (0.002, 0.007, 0.013, 0.024)[(step >= 90) + (step >= 170) + (step >= 250)]

    work(tape, 330, load=load, seed=312)


@fault(
    "tenth", "straggler intermittent_straggler odd_machine uneven_load throughput_loss slow_span", step=120, window=30
)
def ranks_one_is_slow(tape: Tape) -> None:
    """The first of four ranks logs the step time of each: that of rank 2 is twice the others' from 120 on."""
    made = torch.Generator().manual_seed(7)

    def says(step: int, took: float) -> Values:
        found = {}
        for rank in range(4):
            begun = time.perf_counter()
            rest(0.002 * (1 + 0.1 * float(torch.rand(1, generator=made))) * (2.5 if rank == 2 and step >= 120 else 1))
            found[f"perf/step_time_ms/rank_{rank}"] = 1000 * (time.perf_counter() - begun)
        return found

    work(tape, 300, says=says, ahead=never, seed=313, name="loss")


@fault("tenth", "memory_creep gpu_memory_creep")
def memory_of_losses_kept(tape: Tape) -> None:
    """`total_loss += loss` keeps what each step computed: the peak of the memory grows by the same with each."""
    held: list[torch.Tensor] = []

    def before(step: int) -> None:
        held.append(torch.zeros(60_000))

    def says(step: int, took: float) -> Values:
        if step % 5 != 4:
            return {}
        own = sum(each.numel() * 4 for each in held)
        return {"peak_memory_active": (9_000_000 + own) / 2**20, "tokens_per_second_per_gpu": 32 * 32 / took}

    work(tape, 320, says=says, before=before, seed=314, name="loss", every=5)


@fault("tenth", "checkpoint_growth")
def checkpoints_with_all_that_was_logged(tape: Tape) -> None:
    """Each checkpoint holds the log of all steps before: the last takes twenty times as long as the first."""
    work(tape, 360, save=20, kept=lambda step: 60_000 * (step + 1), seed=315)


@fault("tenth", "gc_pauses periodic_stall slow_span data_stall throughput_loss")
def pauses_to_collect(tape: Tape) -> None:
    """A million small objects are alive, and all are looked at each fifteen steps: a pause of some 100 ms."""
    alive: list[Any] = []

    def before(step: int) -> None:
        if not alive:
            alive.extend([index] for index in range(1_200_000))
        if step % 15 == 14:
            gc.collect()

    gc.disable()
    try:
        work(tape, 300, before=before, seed=316)
    finally:
        gc.enable()


@fault("tenth", "periodic_stall throughput_loss slow_span", config={"eval_steps": 5})
def looked_at_too_often(tape: Tape) -> None:
    """An evaluation each five steps, each of which takes longer than the five: two thirds of the time."""
    work(tape, 250, look=5, long=lambda step: 0.06, seed=317, name="loss")


@fault("tenth", "periodic_stall slow_span data_stall throughput_loss")
def stalls_each_hundred_and_twenty(tape: Tape) -> None:
    """Each 120 steps the file system writes back what it holds: the step waits for 0.4 s."""
    work(tape, 900, idle=lambda step: 0.4 if step % 120 == 119 else 0.0, ahead=never, load=never, seed=318)


@fault("tenth", "periodic_stall slow_span data_stall throughput_loss")
def stalls_each_twenty_five(tape: Tape) -> None:
    """Each 25 steps the tracker sends what it has, while the step waits for 90 ms."""
    work(tape, 450, idle=lambda step: 0.09 if step % 25 == 24 else 0.0, seed=319)


@fault("tenth", "throughput_loss slow_span")
def slower_by_what_is_kept(tape: Tape) -> None:
    """All predictions are kept, and put together again in each step: the speed falls to a half, little by little."""
    held: list[torch.Tensor] = []

    def before(step: int) -> None:
        held.append(torch.zeros(2500))
        torch.cat(held).sort()

    def says(step: int, took: float) -> Values:
        return {"train/tokens_per_sec": 1024 / took} if step % 2 == 1 else {}

    work(tape, 300, before=before, says=says, seed=320, name="train/loss")


@fault("tenth", "gpu_hot gpu_slowdown throughput_loss slow_span", step=170, window=70)
def hot_and_slow(tape: Tape) -> None:
    """A fan stops at step 150: the chip heats up to its limit, its clock is cut, and steps take as much longer."""
    state = {"heat": 66.0, "clock": 1980.0}

    def before(step: int) -> None:
        cooling = 0.02 if step < 150 else 0.004
        state["heat"] += 0.85 * state["clock"] / 1980 - cooling * (state["heat"] - 23.5)
        limit = 92.0
        state["clock"] = max(800.0, min(1980.0, state["clock"] + (40.0 if state["heat"] < limit else -60.0)))
        if step % 10 == 0:
            readings = {
                "gpu/0/temperature_celsius": round(min(state["heat"], 96.0), 1),
                "gpu/0/clock_mhz": state["clock"],
                "gpu/0/utilization": 0.97,
                "gpu/0/power_watts": 300 * state["clock"] / 1980,
            }
            tape.rows.append(["r", tape._now(), readings])

    work(tape, 420, before=before, ahead=lambda step: 0.006 * 1980 / state["clock"], seed=321, load=never)


@fault(
    "tenth", "slow_span slow_link data_stall periodic_stall throughput_loss intermittent_straggler", step=140, window=30
)
def network_with_hiccups(tape: Tape) -> None:
    """A link flaps from step 140 on: about each eighth exchange of gradients takes 70 to 150 ms instead of 2."""
    made = torch.Generator().manual_seed(11)
    chances = torch.rand(340, 2, generator=made).tolist()

    def reduce(step: int) -> float:
        return 0.07 + 0.08 * chances[step][1] if step >= 140 and chances[step][0] < 0.13 else 0.002

    work(tape, 340, reduce=reduce, seed=322)


@fault("tenth", "recompilation slow_span throughput_loss periodic_stall", step=130, window=40)
def compiled_for_each_length(tape: Tape) -> None:
    """From 130 on batches have any length, and each new one is compiled for 60 ms, until the limit: then it is slow."""
    lengths = torch.randint(0, 30, (320,), generator=torch.Generator().manual_seed(5)).tolist()
    known: set[int] = set()

    def ahead(step: int) -> float:
        if step < 130:
            return 0.002
        if lengths[step] in known:
            return 0.002
        known.add(lengths[step])
        if len(known) == 8:
            text = (
                "torch._dynamo hit config.recompile_limit (8)\n   function: 'forward' (model.py:41)\n   last reason: "
                f"0/7: tensor 'x' size mismatch at index 1. expected 12, actual {lengths[step]}"
            )
            tape.rows.append(["l", tape._now(), step, 13, text])
        return 0.06 if len(known) <= 8 else 0.012

    work(tape, 320, ahead=ahead, seed=323)
