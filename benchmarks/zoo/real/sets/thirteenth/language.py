"""The thirteenth set: small language models, trained from nothing and from good weights."""

import copy
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.thirteenth.notes import PAD, Writer, crops, next_sign, text
from benchmarks.zoo.real.sets.thirteenth.tasks import Learner, Pair, Rate, Values, cosine, drive, in_evaluation, say
from benchmarks.zoo.real.tape import Tape

Batch = Callable[[int], Pair]
NANO = {"run": "d2", "max_seq_len": 40, "num_iterations": 300, "eval_every": 20}
SFT = {"trainer": "SFTTrainer", "logging_steps": 10, "eval_steps": 50, "num_train_epochs": 3}
TITAN = {"training.steps": 420, "checkpoint.enable": True, "checkpoint.interval": 240}
FP16 = {"fp16": True, "loss_scale_window": 50, "lr": 3e-3, "train_iters": 400}


def nanochat(tape: Tape, batch: Batch, seed: int, steps: int, drop: float = 0.0) -> None:
    """The names of nanochat: a step each, bits per sign of the held-out text at every twentieth."""
    torch.manual_seed(seed)
    held = crops(text("harbour")[1], 60, 32)
    schedule = cosine(4e-3, steps, 15, 0.0)
    work = Learner(Writer(drop=drop), schedule)
    smooth = 0.0

    def act(step: int) -> Values:
        nonlocal smooth
        begun = time.perf_counter()
        pair = batch(step)
        work.take(step, lambda: next_sign(work.model, pair))
        took = time.perf_counter() - begun
        smooth = 0.9 * smooth + 0.1 * work.loss
        found: Values = {
            "train/loss": smooth / (1 - 0.9 ** (step + 1)),
            "train/lrm": work.now / 4e-3,
            "train/dt": took,
            "train/tok_per_sec": int(pair[0].numel() / took),
        }
        if step % 20 == 19:
            bits = in_evaluation(work.model, lambda: next_sign(work.model, held)) / math.log(2)
            found["val/bpb"] = bits
        return found

    drive(tape, steps, act)


@healthy("thirteenth", config=NANO)
def healthy_writing_longer_and_longer(tape: Tape) -> None:
    """Pieces of 20 signs at first, then of 30, then of 40."""
    nanochat(
        tape, lambda step: crops(text("harbour")[0], 16, 20 if step < 100 else 30 if step < 200 else 40), 1301, 300
    )


@fault("thirteenth", "stuck_batch overfit too_good generalization_gap", config=NANO | {"max_seq_len": 32})
def writing_one_batch_for_ever(tape: Tape) -> None:
    """The loader is made anew with its seed at each step: all steps see the same twelve pieces."""

    def batch(step: int) -> Pair:
        with torch.random.fork_rng():
            torch.manual_seed(42)
            return crops(text("harbour")[0], 12, 32)

    nanochat(tape, batch, 1302, 300)


def titan(tape: Tape, resume: Callable[[Learner, dict[str, Any]], None], seed: int, at: int = 240) -> None:
    """The names of torchtitan at every second step; at 240 the training comes back from its checkpoint."""
    torch.manual_seed(seed)
    known = text("kitchen")[0]
    work = Learner(Writer(), cosine(4e-3, 420, 20))

    def act(step: int) -> Values | None:
        if step == at:
            say(tape, step, f"Loading the checkpoint from outputs/checkpoint/step-{at}.")
            resume(work, copy.deepcopy({"model": work.model.state_dict(), "optim": work.optimizer.state_dict()}))
            say(tape, step, "Finished loading the checkpoint. Training continues.")
        begun = time.perf_counter()
        work.take(step, lambda: next_sign(work.model, crops(known, 12, 32)))
        took = time.perf_counter() - begun
        found = {"loss_metrics/global_avg_loss": work.loss, "grad_norm": work.norm, "lr": work.now}
        return found | {"throughput(tps)": 384 / took} if step % 2 == 0 else None

    drive(tape, 420, act)


@healthy("thirteenth", config=TITAN)
def healthy_recipes_resumed(tape: Tape) -> None:
    """A training that comes back with its weights, its optimizer and its place in the schedule."""

    def resume(work: Learner, saved: dict[str, Any]) -> None:
        work.model = Writer()
        work.model.load_state_dict(saved["model"])
        work.optimizer = torch.optim.AdamW(work.model.parameters(), weight_decay=0.01)
        work.optimizer.load_state_dict(saved["optim"])

    titan(tape, resume, 1304)


@fault("thirteenth", "bad_resume level_shift spike", step=240, window=6, config=TITAN | {"checkpoint.strict": False})
def recipes_resumed_without_layers(tape: Tape) -> None:
    """The names of a layer and of the head do not fit those of the checkpoint, and `strict` is off: both begin anew."""

    def resume(work: Learner, saved: dict[str, Any]) -> None:
        work.model = Writer()
        kept = {name: value for name, value in saved["model"].items() if not name.startswith(("layers.1", "head"))}
        work.model.load_state_dict(kept, strict=False)
        work.optimizer = torch.optim.AdamW(work.model.parameters(), weight_decay=0.01)

    titan(tape, resume, 1305)


@functools.cache
def _good_weights() -> dict[str, Any]:
    torch.manual_seed(1300)
    work = Learner(Writer(drop=0.1), cosine(4e-3, 260, 10))
    drive(Tape(), 260, lambda step: work.take(step, lambda: next_sign(work.model, crops(text("harbour")[0], 12, 32))))
    return dict(work.model.state_dict())


def fine_tune(tape: Tape, batch: Callable[[int], Pair], seed: int, every: int, steps: int = 300) -> None:
    """From the weights of another text, in the names of TRL's SFTTrainer; evaluated at every fiftieth step."""
    torch.manual_seed(seed)
    model = Writer(drop=0.1)
    model.load_state_dict(_good_weights())
    torch.manual_seed(seed + 1)
    held = crops(text("kitchen")[1], 60, 32)
    work = Learner(model, cosine(8e-4, steps, 15, 0.0))
    sums = {"loss": 0.0, "mean_token_accuracy": 0.0, "entropy": 0.0}
    count = 0

    def act(step: int) -> Values | None:
        nonlocal count
        rows, wanted = batch(step)

        def loss() -> torch.Tensor:
            scores = model(rows)
            share = scores.detach().softmax(-1)
            sums["entropy"] += float(torch.special.entr(share).sum(-1).mean()) / every
            sums["mean_token_accuracy"] += float((scores.argmax(-1) == wanted).float().mean()) / every
            return F.cross_entropy(scores.flatten(0, 1), wanted.flatten())

        work.take(step, loss)
        sums["loss"] += work.loss / every
        count += rows.numel()
        if step % 50 == 49:
            tape.log({"eval_loss": in_evaluation(model, lambda: next_sign(model, held)), "epoch": step / 100})
        if step % every != every - 1:
            return None
        found = sums | {"grad_norm": work.norm, "learning_rate": work.now, "num_tokens": count, "epoch": step / 100}
        sums.update(dict.fromkeys(sums, 0.0))
        return found

    drive(tape, steps, act)


@healthy("thirteenth", config=SFT)
def healthy_recipes_after_ships(tape: Tape) -> None:
    """A model of one text learns another; logged at every tenth step."""
    fine_tune(tape, lambda step: crops(text("kitchen")[0], 12, 32), 1306, 10)


@fault(
    "thirteenth", "level_shift spike divergence accuracy_drop", step=180, window=15, config=SFT | {"logging_steps": 3}
)
def recipes_with_labels_not_shifted(tape: Tape) -> None:
    """From 180 on another collator gives as label the sign itself: the loss leaps, and what is held out gets worse."""

    def batch(step: int) -> Pair:
        rows, wanted = crops(text("kitchen")[0], 12, 32)
        return rows, wanted if step < 180 else rows

    fine_tune(tape, batch, 1307, 3)


def half_precision(tape: Tape, batch: Batch, seed: int, rate: Rate, every: int = 50, steps: int = 400) -> None:
    """Gradients of 16 bits with a loss scale that moves, in the names of Megatron.

    A penalty keeps the signs of a piece apart: the root of their mean squared distance to the first."""
    torch.manual_seed(seed)
    model, scale, good, skipped = Writer(), 2.0**16, 0, 0
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=1e-4)

    def act(step: int) -> Values:
        nonlocal scale, good, skipped
        rows, wanted = batch(step)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        loss = next_sign(model, (rows, wanted))
        placed = model.signs(rows)
        apart = (placed - placed[:, :1]).square().mean((1, 2)).sqrt().mean()
        (scale * (loss - 1e-3 * apart)).backward()
        for weight in model.parameters():
            weight.grad = weight.grad.half().float()
        found: Values = {"lm loss": loss, "learning-rate": rate(step)}
        if all(bool(weight.grad.isfinite().all()) for weight in model.parameters()):
            for weight in model.parameters():
                weight.grad /= scale
            found["grad-norm"] = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            good += 1
            if good % every == 0:
                scale *= 2
        else:
            scale, good, skipped = max(1.0, scale / 2), 0, skipped + 1
        return found | {"loss-scale": scale, "skipped iterations": skipped}

    drive(tape, steps, act)


@healthy("thirteenth", config=FP16)
def healthy_ships_in_half_precision(tape: Tape) -> None:
    """The scale doubles after fifty good steps and halves when the gradients are too large for it."""
    half_precision(tape, lambda step: crops(text("harbour")[0], 12, 32), 1308, cosine(3e-3, 400, 20))


@fault("thirteenth", "scaler_collapse skipped_steps counted_not_finite", step=210, window=25, config=FP16)
def ships_with_empty_rows(tape: Tape) -> None:
    """From 210 on the files end in rows of padding: the root of zero has no slope, and no step is taken."""

    def batch(step: int) -> Pair:
        rows, wanted = crops(text("harbour")[0], 12, 32)
        if step >= 210:
            rows[-2:], wanted[-2:] = PAD, PAD
        return rows, wanted

    half_precision(tape, batch, 1309, cosine(3e-3, 400, 20))
