"""The fourteenth set: pre-training of small language models: plain, in half precision, in parts, in stages."""

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fourteenth.schedules import cosine, steady
from benchmarks.zoo.real.sets.fourteenth.tasks import Fit, Values, clipped, drive
from benchmarks.zoo.real.sets.fourteenth.texts import Decoder, Verses, next_sign
from benchmarks.zoo.real.tape import Tape

At = Callable[[Fit, int], None]


def titan(tape: Tape, at: At | None = None, seed: int = 1401, steps: int = 320) -> None:
    """Pre-training in the names of torchtitan, validated every 60 steps."""
    torch.manual_seed(seed)
    verses = Verses()
    held = verses.pair(64, 24)
    begun = time.perf_counter()

    def loss(model: Any, pair: Any) -> torch.Tensor:
        nonlocal begun
        if model.training:
            took, begun = time.perf_counter() - begun, time.perf_counter()
            fit.extra = {"throughput(tps)": 16 * 24 / took, "time_metrics/end_to_end(s)": took}
        return next_sign(model, pair)

    def seen(fit: Fit) -> Values:
        return {"validation_metrics/loss": fit.seen(held)}

    names, rate = ("loss_metrics/global_avg_loss", "lr", "grad_norm"), cosine(steps, 5e-3, 30, 0.1)
    batch = functools.partial(verses.pair, 16, 24)
    fit = Fit(Decoder(), batch, loss, steps, rate, names, at=at, evaluate=seen, evaluate_every=60)
    fit.run(tape)


TITAN = {"model": {"flavor": "debugmodel"}, "training": {"steps": 320, "local_batch_size": 16, "seq_len": 24}}


@healthy("fourteenth", config=TITAN | {"optimizer": {"lr": 5e-3}, "lr_scheduler": {"warmup_steps": 30}})
def healthy_titan(tape: Tape) -> None:
    """Pre-training with a warm-up and a cosine."""
    titan(tape)


@fault(
    "fourteenth",
    "bad_resume level_shift spike divergence",
    step=200,
    window=6,
    config=TITAN | {"optimizer": {"lr": 5e-3}, "checkpoint": {"enable": True, "interval": 200, "load_step": -1}},
)
def titan_resumed_without_its_tables(tape: Tape) -> None:
    """The checkpoint that is loaded at 200 names the embedding and the head otherwise: both begin anew."""

    def at(fit: Fit, step: int) -> None:
        if step == 200:
            fit.model.signs.reset_parameters()
            fit.model.head.reset_parameters()

    titan(tape, at, seed=1402)


@fault(
    "fourteenth",
    "data_stall throughput_loss slow_span input_bound",
    step=190,
    window=20,
    config=TITAN | {"optimizer": {"lr": 5e-3}, "dataset_path": "s3://corpus/verses", "dataset_cache": "local"},
)
def titan_reads_from_afar(tape: Tape) -> None:
    """From 190 on the local cache is gone: each batch waits 80 ms or more for the store."""
    made = torch.Generator().manual_seed(7)

    def at(fit: Fit, step: int) -> None:
        if step == 190:
            near = fit.batch

            def far() -> Any:
                time.sleep(0.08 + 0.03 * float(torch.rand(1, generator=made)))
                return near()

            fit.batch = far

    titan(tape, at, seed=1403)


def megatron(tape: Tape, seed: int = 1411, steps: int = 300, ends: Callable[[int], bool] = lambda step: False) -> None:
    """Pre-training with gradients in half precision and a dynamic loss scale, in the names of Megatron-LM."""
    torch.manual_seed(seed)
    verses, model = Verses(seed=1410), Decoder(width=32, layers=2)
    with torch.no_grad():
        model.signs.weight[0] = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1, fused=True)
    rate, held = cosine(steps, 3e-3, 20, 0.1), verses.pair(64, 24)
    scale, good = 2.0**24, 0

    def act(step: int) -> Values:
        nonlocal scale, good
        begun = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        rows, wanted = verses.pair(16, 24)
        if ends(step):
            rows[:, -1] = 0
        loss = next_sign(model, (rows, wanted))
        if ends(step):
            # The square root has no slope at 0, where the embedding of the padding is.
            loss = loss + 1e-4 * model.signs(rows).square().sum(-1).sqrt().mean()
        (loss * scale).backward()
        fine = True
        for weight in model.parameters():
            half = weight.grad.half()
            fine = fine and bool(half.isfinite().all())
            weight.grad.copy_(half.float() / scale)
        found: Values = {"lm loss": loss.item(), "learning-rate": rate(step), "loss-scale": scale, "batch-size": 16}
        if fine:
            found["grad-norm"] = clipped(model, 1.0)
            optimizer.step()
            good += 1
            if good % 100 == 0:
                scale *= 2
        else:
            scale, good = max(1.0, scale / 2), 0
        found["params-norm"] = math.sqrt(sum(float(weight.detach().square().sum()) for weight in model.parameters()))
        found["iteration-time"] = time.perf_counter() - begun
        if step % 80 == 79:
            with torch.no_grad():
                found["lm loss validation"] = next_sign(model, held)
        return found

    drive(tape, steps, act)


FP16 = {"fp16": True, "initial_loss_scale": 2**24, "loss_scale_window": 100, "clip_grad": 1.0, "train_iters": 300}


@healthy("fourteenth", config=FP16)
def healthy_megatron_half(tape: Tape) -> None:
    """Half precision: the scale finds its level in the first steps, and steps are skipped now and then."""
    megatron(tape)


@fault("fourteenth", "scaler_collapse skipped_steps weights_frozen plateau", step=190, window=20, config=FP16)
def megatron_padding_without_slope(tape: Tape) -> None:
    """From 185 on a regularizer takes the root of 0: no gradient is finite, each step is skipped."""
    megatron(tape, seed=1412, ends=lambda step: step >= 185)


@healthy("fourteenth", config={"batch_size": 4, "gradient_accumulation_steps": 3, "max_iters": 300, "warmup_iters": 0})
def healthy_nano_in_parts(tape: Tape) -> None:
    """Tiny batches, three to a step, no warm-up, evaluated every 60 steps, as nanoGPT does."""
    torch.manual_seed(1431)
    verses = Verses(seed=1430)
    held = [verses.pair(48, 32) for _ in range(2)]

    def seen(fit: Fit) -> Values:
        return {"val/loss": sum(fit.seen(each) for each in held) / 2}

    names, rate = ("train/loss", "lr", "grad_norm"), cosine(300, 4e-3, 0, 0.1)
    batch = functools.partial(verses.pair, 4, 32)
    Fit(Decoder(drop=0.05), batch, next_sign, 300, rate, names, parts=3, evaluate=seen, evaluate_every=60).run(tape)


@healthy("fourteenth", config={"curriculum": [8, 16, 32], "steps_per_stage": 110, "criterion": "cross_entropy"})
def healthy_longer_verses(tape: Tape) -> None:
    """Verses get longer and less sure in three stages, as fairseq logs: each stage begins with a higher loss."""
    torch.manual_seed(1451)
    stages = [(Verses(metres=2, sure=0.9), 8), (Verses(metres=3, sure=0.85), 16), (Verses(metres=5), 32)]

    def at(fit: Fit, step: int) -> None:
        if step % 110 == 0:
            verses, length = stages[step // 110]
            fit.batch = lambda: verses.pair(256 // length, length)
            fit.extra["curriculum/length"] = length

    def loss(model: Any, pair: Any) -> torch.Tensor:
        found = next_sign(model, pair)
        fit.extra["train_inner/ppl"] = math.exp(found.item())
        return found

    names = ("train_inner/loss", "train_inner/lr", "train_inner/gnorm")
    fit = Fit(Decoder(), lambda: None, loss, 330, steady(4e-3), names, at=at)
    fit.run(tape)
