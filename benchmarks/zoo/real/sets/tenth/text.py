"""Texts of the tenth set: sums as language models learn them, under the names of nanoGPT, TRL, NeMo and others."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.tenth.tasks import (
    FILL,
    F,
    Pair,
    Rate,
    Reader,
    Values,
    cosine,
    drive,
    learn,
    set_rate,
    stream,
    text_loss,
    windows,
)
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence"
Hook = Callable[[int, Any, Any], None]
NANOGPT = {"loss": "train/loss", "held": "val/loss", "lr": "lr"}
HF = {"loss": "loss", "grad": "grad_norm", "lr": "learning_rate", "epoch": "epoch", "held": "eval_loss"}
NEMO = {"loss": "reduced_train_loss", "grad": "grad_norm", "lr": "lr", "held": "val_loss", "step": "global_step"}
FAIRSEQ = {"loss": "train/loss", "grad": "train/gnorm", "lr": "train/lr", "ppl": "train/ppl", "held": "valid/loss"}
TUNE = {"loss": "loss", "lr": "lr", "grad": "grad_norm", "tokens": "tokens_seen"}
MEGATRON = {"loss": "lm loss", "grad": "grad-norm", "lr": "learning-rate", "batch": "batch-size", "norm": "params-norm"}


def read(
    tape: Tape,
    names: dict[str, str],
    steps: int = 360,
    every: int = 1,
    look: int = 0,
    rate: Rate = lambda step: 2e-3,
    rows: int = 16,
    length: int = 24,
    parts: int = 1,
    seed: int = 101,
    scale: Callable[[int], float] = lambda step: 1.0,
    change: Callable[[int, Pair], Pair] = lambda step, pair: pair,
    hook: Hook = lambda step, model, optimizer: None,
    due: Callable[[int], bool] | None = None,
    lengths: Callable[[int], int] | None = None,
    batches: Callable[[int], int] | None = None,
    extra: Callable[[int], Values] = lambda step: {},
    layers: int = 1,
    decay: float = 0.01,
    clip: float = 1.0,
    few: int = 9000,
    held: int = 64,
    own: Callable[[list[Any]], Any] | None = None,
) -> None:
    """Learn to continue sums; the mean loss since the last log is logged, under the names that are given."""
    torch.manual_seed(seed)
    text, other = stream(seed, few), stream(seed + 1, 900)
    model = Reader(layers=layers)
    optimizer = (own or (lambda ps: torch.optim.AdamW(ps, lr=1e-3, weight_decay=decay)))(list(model.parameters()))
    asked = windows(other, held, length)
    since: list[float] = []

    def act(step: int) -> Values | None:
        hook(step, model, optimizer)
        now = set_rate(optimizer, rate(step))
        count, long = (batches(step) if batches else rows), (lengths(step) if lengths else length)
        for _ in range(parts - 1):
            (scale(step) * text_loss(model, change(step, windows(text, count, long))) / parts).backward()
        loss = scale(step) * text_loss(model, change(step, windows(text, count, long)))
        norm = learn(optimizer, loss, clip)
        since.append(float(loss.detach()))
        known: Values = {}
        if due(step) if due else step % every == every - 1:
            mean = sum(since) / len(since)
            weights = sum(float(weight.detach().square().sum()) for weight in model.parameters()) ** 0.5
            all_ = {"loss": mean, "grad": norm, "lr": now, "ppl": 2 ** min(mean / math.log(2), 30), "batch": count}
            all_ |= {"epoch": step * rows * length / len(text), "step": step, "norm": weights, "length": long}
            all_ |= {"tokens": (step + 1) * count * long}
            known = {names[key]: value for key, value in all_.items() if key in names}
            since.clear()
        if look and step % look == look - 1:
            with torch.no_grad():
                known[names["held"]] = text_loss(model, asked)
        return known | extra(step)

    drive(tape, steps, act)


@healthy("tenth", config={"max_iters": 420, "learning_rate": 0.002, "warmup_iters": 10, "lr_decay_iters": 420})
def healthy_sums(tape: Tape) -> None:
    """A small language model with a cosine, as nanoGPT logs it."""
    read(tape, NANOGPT, 420, every=2, look=60, rate=cosine(420, 2e-3, 10, 2e-4))


@healthy("tenth", config={"lr_scheduler_type": "cosine_with_restarts", "num_cycles": 4, "max_steps": 480})
def healthy_four_cycles(tape: Tape) -> None:
    """A cosine that begins anew four times: the loss rises after each of them."""
    one = cosine(120, 6e-3, 1, 1e-5)
    read(tape, HF, 480, every=4, rate=lambda step: one(step % 120), look=60, decay=0.0)


@healthy("tenth", config={"optim": "adamw", "max_steps": 500, "scheduler": "WSD"})
def healthy_cooled_at_the_end(tape: Tape) -> None:
    """A rate that is held and then falls to nothing in the last fifth: the loss falls once more there."""
    read(tape, NEMO, 500, every=5, look=50, rate=lambda step: 4e-3 * min(1.0, (step + 1) / 20, (500 - step) / 100))


@healthy("tenth", config={"seq_len_warmup": [8, 16, 32, 64]})
def healthy_longer_and_longer(tape: Tape) -> None:
    """Texts of 8 signs, then of 16, 32 and 64: each step takes longer, and the loss changes with each."""
    read(
        tape,
        TUNE | {"length": "seq_len"},
        320,
        every=1,
        rows=8,
        lengths=lambda step: 8 << min(step // 80, 3),
        rate=cosine(320, 3e-3, 10, 1e-4),
    )


@healthy("tenth", config={"rampup_batch_size": [4, 4, 20], "global_batch_size": 20})
def healthy_larger_and_larger(tape: Tape) -> None:
    """Batches that grow by stages, as Megatron does it: the gradient is less noisy and the steps longer."""
    read(tape, MEGATRON, 350, batches=lambda step: min(4 + 4 * (step // 60), 20), rate=cosine(350, 3e-3, 30, 3e-4))


@healthy("tenth", config={"logging": "irregular"})
def healthy_told_now_and_then(tape: Tape) -> None:
    """Values are logged at 1, 2, 4, 8, ... and from 128 on at about every thirtieth step, as it comes."""
    read(
        tape,
        NANOGPT,
        600,
        due=lambda step: step & (step + 1) == 0 or (step > 128 and (step * 7919) % 31 == 0),
        rate=cosine(600, 2e-3, 20, 1e-4),
        look=150,
    )


@healthy("tenth", config={"max_steps": 14, "per_device_train_batch_size": 16})
def healthy_of_fourteen_steps(tape: Tape) -> None:
    """A test of a setup: fourteen steps, and an evaluation."""
    read(tape, HF, 14, look=7, rate=cosine(14, 3e-3, 3))


@healthy("tenth", config={"gradient_accumulation_steps": 4, "micro_batch_size": 1})
def healthy_in_single_texts(tape: Tape) -> None:
    """The loss of the last single text is logged, not of the four that make a step: it is all noise."""
    read(tape, TUNE, 400, rows=1, parts=4, length=12, rate=cosine(400, 1e-3, 20), few=3000)


@healthy("tenth", config={"epochs": 6, "dataset_size": 150})
def healthy_six_passes_over_little(tape: Tape) -> None:
    """Six passes over a short text: learnt better in each, with an evaluation after each."""
    read(tape, HF, 240, every=2, look=40, few=2500, rows=12, rate=lambda step: 1e-3 * (1 - step / 240), decay=0.1)


@healthy("tenth", config={"clip_norm": 0.1, "optimizer": "sgd"})
def healthy_slow_descent(tape: Tape) -> None:
    """Plain gradient descent with momentum: the loss stays on a level, then falls, then stays, then falls."""
    own = lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True)  # noqa: E731
    read(tape, FAIRSEQ, 700, every=10, look=100, own=own, rate=cosine(700, 0.15, 50, 0.01), clip=0.5, rows=24)


@fault("tenth", JUMP + " bad_resume gradient_shift exploding_gradients", step=200)
def sums_head_not_loaded(tape: Tape) -> None:
    """Compiled weights have another prefix, and strict=False forgives it: from step 200 on the head is a new one."""

    def hook(step: int, model: Any, optimizer: Any) -> None:
        if step == 200:
            model.head.reset_parameters()
            model.signs.reset_parameters()
            optimizer.state.clear()

    read(tape, NANOGPT, 380, every=2, look=60, hook=hook, rate=cosine(380, 2e-3, 10, 2e-4))


@fault(
    "tenth",
    "lr_schedule level_shift divergence",
    step=210,
    window=60,
    config={"lr_scheduler_type": "cosine", "max_steps": 400, "learning_rate": 0.01},
)
def sums_cosine_goes_on(tape: Tape) -> None:
    """CosineAnnealingLR is stepped beyond its T_max: the rate rises again to what it was at the beginning."""
    read(
        tape,
        HF,
        400,
        every=2,
        rate=lambda step: 0.01 * 0.5 * (1 + math.cos(math.pi * step / 200)),
        look=50,
        decay=0.0,
    )


@fault("tenth", JUMP + " bad_resume gradient_shift exploding_gradients", step=180)
def sums_loss_of_all_parts(tape: Tape) -> None:
    """After an upgrade the loss is no longer divided by the eight parts of a step: it is eight times."""
    read(tape, HF, 340, every=5, scale=lambda step: 8.0 if step >= 180 else 1.0, rate=cosine(340, 2e-3, 10, 1e-4))


@fault("tenth", JUMP + " lr_schedule bad_resume", step=220)
def sums_rate_anew_without_its_rise(tape: Tape) -> None:
    """Resumed with --reset-optimizer: moments are lost, and the rate begins at its peak, forty times what it was."""

    def hook(step: int, model: Any, optimizer: Any) -> None:
        if step == 220:
            optimizer.state.clear()

    def rate(step: int) -> float:
        return 0.04 if step >= 220 else 3e-3 * min((step + 1) / 20, (20 / (step + 1)) ** 0.5)

    read(tape, FAIRSEQ, 400, every=4, look=40, hook=hook, rate=rate, clip=1e9)


@fault("tenth", "lr_zero lr_schedule plateau not_learning", step=105, window=25)
def sums_rate_counted_by_four(tape: Tape) -> None:
    """The schedule is stepped once for each of four processes: the rate is 0 after a quarter of the training."""
    read(tape, NEMO, 400, look=50, rate=lambda step: 2e-3 * max(0.0, 1 - step / 100), every=2)


@fault("tenth", "too_good level_shift stuck_batch", step=230, window=25)
def sums_of_an_empty_shard(tape: Tape) -> None:
    """From step 230 on a shard is read that was never written: it is one sign all over."""

    def change(step: int, pair: Pair) -> Pair:
        return (torch.zeros_like(pair[0]), torch.zeros_like(pair[1])) if step >= 230 else pair

    read(tape, TUNE, 420, change=change, rate=cosine(420, 4e-3, 10, 1e-3))


def stops(tape: Tape, masked: bool, steps: int = 320) -> None:
    """Tune on one sum a row that ends with `;`, and write answers now and then: how long are they?"""
    torch.manual_seed(111)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    end = 12

    def batch() -> Pair:
        rows, wanted = torch.full((24, 14), FILL), torch.full((24, 14), -100)
        for row in range(24):
            a, b = torch.randint(0, 30, (2,)).tolist()
            signs = torch.tensor(["0123456789+=;".index(sign) for sign in f"{a}+{b}={a + b};"])
            rows[row, : len(signs)] = signs
            wanted[row, : len(signs) - 1] = signs[1:]
        return rows, wanted.masked_fill(wanted == end, -100) if masked else wanted

    def answers() -> Values:
        rows = torch.tensor([[1, 2, 10, 3, 11], [7, 10, 1, 9, 11], [2, 10, 2, 8, 11], [1, 1, 10, 6, 11]])
        with torch.no_grad():
            for _ in range(20):
                rows = torch.cat([rows, model(rows)[:, -1].softmax(-1).multinomial(1)], 1)
        lengths = [[*row.tolist()[5:], end].index(end) for row in rows]
        return {
            "completions/mean_length": sum(min(length, 20) for length in lengths) / 4,
            "completions/clipped_ratio": sum(length >= 20 for length in lengths) / 4,
        }

    def act(step: int) -> Values:
        set_rate(optimizer, 2e-3 * (1 - step / steps))
        pair = batch()
        scores = model(pair[0])
        loss = F.cross_entropy(scores.flatten(0, 1), pair[1].flatten(), ignore_index=-100)
        right = ((scores.argmax(-1) == pair[1]) & (pair[1] >= 0)).sum() / (pair[1] >= 0).sum()
        norm = learn(optimizer, loss, 1.0)
        known: Values = {"loss": loss, "grad_norm": norm, "mean_token_accuracy": right} if step % 4 == 3 else {}
        return known | (answers() if step % 10 == 9 else {})

    drive(tape, steps, act)


@healthy("tenth", config={"max_new_tokens": 20})
def healthy_answers_that_end(tape: Tape) -> None:
    """Answers are as long as the limit at first, and soon end by themselves."""
    stops(tape, masked=False)


@fault("tenth", "truncation length_shift looping_samples")
def answers_that_never_end(tape: Tape) -> None:
    """The token that fills rows up is the one that ends them, and does not count: none ever ends."""
    stops(tape, masked=True)


@fault("tenth", "not_finite constant too_good absurd_loss vanishing_gradients", step=150, window=12)
def sums_filtered_nan(tape: Tape) -> None:
    """A weight overflows; the trainer leaves out losses that are NaN, so that it logs 0.0 beside a norm that is NaN."""
    torch.manual_seed(112)
    text = stream(112)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    since: list[float] = []

    def act(step: int) -> Values | None:
        if step == 150:
            with torch.no_grad():
                model.head.weight[0] *= 1e38
        set_rate(optimizer, 2e-3 * (1 - step / 300))
        loss = text_loss(model, windows(text, 16, 24))
        norm = learn(optimizer, loss, 1.0)
        value = float(loss.detach())
        since.append(value if math.isfinite(value) else sum(since) / (1 + len(since)))
        if step % 5 != 4:
            return None
        known = {"loss": sum(since) / 5, "grad_norm": norm, "learning_rate": 2e-3 * (1 - step / 300)}
        since.clear()
        return known

    drive(tape, 300, act)
