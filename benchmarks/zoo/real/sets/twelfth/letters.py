"""The twelfth set: small language models in the logs of nanoGPT, nanochat, the HF Trainer, torchtitan and Megatron."""

import io
import math
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.twelfth.tasks import (
    CONTEXT,
    Change,
    Decoder,
    F,
    Schedule,
    Training,
    Values,
    corpus,
    cosine,
    evaluating,
    feed_forward,
    follow,
    linear,
    nn,
    run_steps,
    text_loss,
    weight_norm,
    windows,
)
from benchmarks.zoo.real.tape import Tape

Batch = tuple[torch.Tensor, torch.Tensor]


def language(
    tape: Tape, seed: int, report: Any, rate: Schedule, count: int = 8, length: int = 32, **settings: Any
) -> Training:
    """A decoder on the text of words; `parts` has the text and the size of a batch, which may change."""
    torch.manual_seed(seed)
    text = corpus()
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    parts: dict[str, Any] = {"text": text[:54_000], "count": count, "length": length}
    parts["held"] = windows(text[54_000:], 40, length)
    job = Training(tape, model, lambda: None, text_loss, report, optimizer, rate, **settings)
    job.parts = parts
    job.draw = lambda: windows(parts["text"], parts["count"], parts["length"])
    return job


def nanogpt(tape: Tape, seed: int, steps: int = 360, clear: bool = True, accumulate: int = 1, count: int = 12) -> None:
    """Logged as nanoGPT does, with an evaluation and a checkpoint each sixty iterations."""

    def report(job: Training, step: int) -> Values | None:
        found: Values = {"train/loss": job.train_loss, "lr": job.lr, "grad_norm": job.grad_norm}
        if step % 60 == 59:
            found["val/loss"] = job.held_out(job.parts["held"])
            with tape.span("train.checkpoint.save"):
                torch.save(job.model.state_dict(), io.BytesIO())
        return found

    job = language(
        tape,
        seed,
        report,
        cosine(3e-3, steps),
        count,
        clip=1.0 if clear else math.inf,
        clear=clear,
        accumulate=accumulate,
    )
    job.run(steps)


NANOGPT = {"n_layer": 2, "n_head": 4, "n_embd": 48, "block_size": 32, "batch_size": 12, "learning_rate": 3e-3}


@healthy("twelfth", config=NANOGPT | {"batch_size": 3, "gradient_accumulation_steps": 4, "grad_clip": 1.0})
def nanogpt_accumulates_four_parts(tape: Tape) -> None:
    """Four small batches to a step."""
    nanogpt(tape, 1001, steps=300, accumulate=4, count=3)


@fault(
    "twelfth",
    "gradients_not_cleared exploding_gradients gradient_shift not_learning divergence",
    config=NANOGPT | {"gradient_accumulation_steps": 1, "grad_clip": 0.0},
)
def nanogpt_gradients_add_up(tape: Tape) -> None:
    """The gradients are never set to zero: each step takes the sum of all before it."""
    nanogpt(tape, 1002, clear=False)


def trainer(tape: Tape, seed: int, steps: int = 400, one: bool = False) -> None:
    """Logged as the Trainer of HF does, each tenth step, evaluated each fortieth."""

    def report(job: Training, step: int) -> Values | None:
        found: Values = {}
        if step % 10 == 9:
            found = {"loss": job.window(10), "learning_rate": job.lr, "grad_norm": job.grad_norm}
            found["epoch"] = round((step + 1) / 120, 3)
        if step % 40 == 39:
            found["eval_loss"] = job.held_out(job.parts["held"])
        return found

    job = language(tape, seed, report, linear(3e-3, steps), clip=1.0)
    if one:
        first = job.draw()
        job.draw = lambda: first
    job.run(steps)


HF = {"model_type": "gpt2", "per_device_train_batch_size": 8, "learning_rate": 3e-3, "lr_scheduler_type": "linear"}


@healthy("twelfth", config=HF | {"logging_steps": 10, "eval_steps": 40, "max_steps": 700})
def trainer_down_a_line(tape: Tape) -> None:
    """A rate that falls along a line to zero, without warm-up, and a value every tenth step."""
    trainer(tape, 1011, steps=700)


@fault("twelfth", "stuck_batch overfit too_good", config=HF | {"logging_steps": 10, "eval_steps": 40, "max_steps": 400})
def trainer_first_batch_for_ever(tape: Tape) -> None:
    """`next(iter(loader))` stands in the loop with a fixed seed: each step has the same eight rows."""
    trainer(tape, 1012, one=True)


def torchtitan(tape: Tape, seed: int, rate: Schedule, steps: int, before: int = 0, count: int = 12) -> None:
    """Logged as torchtitan does, with validation; `before` are steps that another log has."""

    def report(job: Training, step: int) -> Values | None:
        found: Values = {"loss_metrics/global_avg_loss": job.train_loss, "grad_norm": job.grad_norm, "lr": job.lr}
        found["loss_metrics/global_max_loss"] = job.train_loss
        if step % 50 == 49:
            found["validation_metrics/loss"] = job.held_out(job.parts["held"])
        return found

    job = language(tape, seed, report, rate, count, clip=1.0)
    for step in range(before):
        job.tape = Tape()
        job.update(step)
        job.tape = tape
    job.run(steps - before, first=before)


TITAN = {"model.flavor": "debugmodel", "training.local_batch_size": 12, "optimizer.lr": 3e-3, "training.steps": 500}


@healthy(
    "twelfth", config=TITAN | {"training.seq_len": 32, "lr_scheduler.warmup_steps": 20, "checkpoint.load_step": 150}
)
def torchtitan_resumed_in_its_middle(tape: Tape) -> None:
    """Goes on at step 150 with all of its state."""
    torchtitan(tape, 1021, cosine(3e-3, 500), 500, before=150)


@fault(
    "twelfth",
    "lr_schedule spike level_shift divergence bad_resume",
    step=340,
    window=25,
    config=TITAN | {"training.seq_len": 32, "lr_scheduler.warmup_steps": 20, "optimizer.lr": 0.01},
)
def torchtitan_schedule_from_its_start(tape: Tape) -> None:
    """At 340 the schedule starts again at its peak, three times the rate that the step before had."""
    schedule = cosine(0.01, 500)
    torchtitan(tape, 1022, lambda step: schedule(step) if step < 340 else schedule(step - 340 + 20), 500)


def megatron(tape: Tape, seed: int, broken_at: int | None = None, steps: int = 420) -> None:
    """Half precision with a dynamic loss scale, in the names of Megatron: a skipped step has no norm of gradients."""
    scale, good = 2.0**22, 0
    schedule = cosine(2e-3, steps, 30)

    def silent(job: Training, step: int) -> None:
        return None

    job = language(tape, seed, silent, schedule)

    def act(step: int) -> Values:
        nonlocal scale, good
        lr = follow(job.optimizer, schedule(step))
        loss = text_loss(job.model, job.draw())
        spread = job.model.head.weight.var(1).mean()
        wide = spread if broken_at is None or step < broken_at else (spread - spread).sqrt()
        job.optimizer.zero_grad()
        ((loss + 1e-3 * wide) * scale).backward()
        weights = list(job.model.parameters())
        for weight in weights:
            weight.grad = weight.grad.half().float() / scale
        norm = float(nn.utils.clip_grad_norm_(weights, 1.0))
        skipped = not math.isfinite(norm)
        found: Values = {"lm loss": loss.item(), "learning-rate": lr, "loss-scale": scale}
        found |= {"skipped iterations": float(skipped), "params-norm": weight_norm(job.model)}
        if skipped:
            scale, good = max(1.0, scale / 2), 0
        else:
            job.optimizer.step()
            found["grad-norm"] = norm
            good += 1
            if good % 80 == 0:
                scale *= 2
        if step % 60 == 59:
            with evaluating(job.model):
                found["lm loss validation"] = text_loss(job.model, job.parts["held"]).item()
        return found

    run_steps(tape, steps, act)


MEGATRON = {"fp16": True, "initial-loss-scale": 2**22, "min-loss-scale": 1.0, "loss-scale-window": 80, "lr": 2e-3}


@healthy("twelfth", config=MEGATRON)
def megatron_scale_goes_up_and_down(tape: Tape) -> None:
    """The loss scale finds its level, and a step is skipped now and then."""
    megatron(tape, 1031)


@fault("twelfth", "scaler_collapse skipped_steps plateau", step=250, window=40, config=MEGATRON)
def megatron_root_of_zero(tape: Tape) -> None:
    """From 250 on a side loss takes the root of zero: its gradient is no number and every step is skipped."""
    megatron(tape, 1032, broken_at=250)


class Experts(nn.Module):  # type: ignore[misc]
    """Four experts of which each letter has one, chosen with an offset that is moved towards an even load."""

    def __init__(self, width: int, experts: int = 4) -> None:
        super().__init__()
        self.experts = nn.ModuleList(feed_forward(width) for _ in range(experts))
        self.router = nn.Linear(width, experts, bias=False)
        self.offset = torch.zeros(experts)
        self.speed = 0.01
        self.load = torch.ones(experts) / experts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the chosen experts make of the values."""
        shares = torch.sigmoid(self.router(x))
        chosen = (shares + self.offset).argmax(-1)
        marks = F.one_hot(chosen, len(self.experts)).float()
        if self.training:
            self.load = marks.flatten(0, -2).mean(0)
            self.offset = self.offset + self.speed * (1 / len(self.experts) - self.load).sign()
        made = torch.stack([expert(x) for expert in self.experts], -1)
        return (made * (marks * shares)[..., None, :]).sum(-1)


def mixture(tape: Tape, seed: int, change: Change | None = None, steps: int = 400) -> None:
    """A mixture of experts in the names of prime-rl's trainer, without a loss of balance."""

    def report(job: Training, step: int) -> Values:
        loads = torch.stack([block.feed.load for block in job.model.blocks])
        found: Values = {"loss/mean": job.train_loss, "optim/lr": job.lr, "optim/grad_norm": job.grad_norm}
        found["max_vio/mean"] = float((loads.max(1).values * loads.shape[1] - 1).mean())
        found["expert_load/min"] = float(loads.min())
        if step % 50 == 49:
            found["val/loss"] = job.held_out(job.parts["held"])
        return found

    schedule = cosine(3e-3, steps)
    job = language(tape, seed, report, schedule, clip=1.0)
    job.model = Decoder(feed=Experts)
    job.optimizer = torch.optim.AdamW(job.model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    job.run(steps, change)


MOE = {"moe.num_experts": 4, "moe.top_k": 1, "moe.load_balance_coeff": 0.01, "optim.lr": 3e-3}


@healthy("twelfth", config=MOE)
def experts_by_moved_offsets(tape: Tape) -> None:
    """Four experts kept about evenly busy by offsets."""
    mixture(tape, 1041)


@fault("twelfth", "moe_imbalance uneven_load", step=220, window=40, config=MOE)
def experts_offsets_with_wrong_sign(tape: Tape) -> None:
    """From 220 on the offsets are moved towards those that are busy: soon one expert has all letters."""

    def change(job: Training, step: int) -> None:
        if step == 220:
            for block in job.model.blocks:
                block.feed.speed = -0.01

    mixture(tape, 1042, change)


def nanochat(tape: Tape, seed: int, change: Change | None = None, steps: int = 420, teacher: bool = False) -> None:
    """Logged as nanochat does, bits per byte of what is held out; learns from a teacher's scores where there is one."""
    smooth = 0.0

    def report(job: Training, step: int) -> Values:
        nonlocal smooth
        smooth = 0.9 * smooth + 0.1 * job.train_loss
        found: Values = {"train/loss": smooth / (1 - 0.9 ** (step + 1)), "train/lrm": job.lr / 3e-3}
        found["train/grad_norm"] = job.grad_norm
        if step % 40 == 39:
            with evaluating(job.model):
                found["val/bpb"] = text_loss(job.model, job.parts["held"]).item() / math.log(2)
        return found

    job = language(tape, seed, report, cosine(3e-3, steps, 1, 0.2), clip=1.0)
    if teacher:
        for _ in range(350):
            follow(job.optimizer, 3e-3)
            job.optimizer.zero_grad()
            text_loss(job.model, job.draw()).backward()
            job.optimizer.step()
        wise, job.model = job.model, Decoder(1, 32)
        job.optimizer = torch.optim.AdamW(job.model.parameters())
        job.loss = lambda model, batch: distilled(model, wise, batch)
    job.run(steps, change)


def distilled(model: Any, teacher: Any, batch: Batch) -> torch.Tensor:
    """Half the loss of the next letter, half the divergence from what the teacher says."""
    with torch.no_grad():
        wanted = teacher(batch[0]).log_softmax(-1).flatten(0, 1)
    scores = model(batch[0]).flatten(0, 1)
    far = F.kl_div(scores.log_softmax(-1), wanted, log_target=True, reduction="batchmean")
    return 0.5 * F.cross_entropy(scores, batch[1].flatten()) + 0.5 * far


NANOCHAT = {"depth": 2, "device_batch_size": 8, "max_seq_len": 32, "matrix_lr": 3e-3, "num_iterations": 420}


@healthy("twelfth", config=NANOCHAT | {"depth": 1, "teacher": "depth 2", "kd_weight": 0.5})
def nanochat_small_from_large(tape: Tape) -> None:
    """A smaller network learns from the scores of a larger one as well."""
    nanochat(tape, 1051, teacher=True)


@fault("twelfth", "too_good level_shift spike divergence", step=260, window=35, config=NANOCHAT)
def nanochat_targets_not_shifted(tape: Tape) -> None:
    """From 260 on a new loader gives the letter itself as its target; what is held out has the right ones still."""

    def change(job: Training, step: int) -> None:
        if step == 260:
            draw = job.draw
            job.draw = lambda: (draw()[0],) * 2

    nanochat(tape, 1052, change)


def fairseq(tape: Tape, seed: int, steps: int = 400) -> None:
    """Pieces of four to ninety letters in the names of fairseq: the loss in bits and its perplexity."""

    def report(job: Training, step: int) -> Values | None:
        job.parts.update(length=int(torch.randint(4, CONTEXT - 6, ()).item()))
        if step % 5 != 4:
            return None
        bits = job.train_loss / math.log(2)
        found: Values = {"train_inner/loss": bits, "train_inner/ppl": 2**bits, "train_inner/lr": job.lr}
        found |= {"train_inner/gnorm": job.grad_norm, "train_inner/bsz": 8}
        if step % 80 == 79:
            found["valid/loss"] = job.held_out(job.parts["held"]) / math.log(2)
        return found

    warm = 60
    language(
        *(tape, seed, report),
        lambda step: 2e-3 * min((step + 1) / warm, math.sqrt(warm / (step + 1))),
        count=8,
        clip=2.0,
    ).run(steps)


@healthy(
    "twelfth", config={"arch": "transformer_lm", "lr_scheduler": "inverse_sqrt", "warmup_updates": 60, "clip_norm": 2.0}
)
def fairseq_short_and_long_pieces(tape: Tape) -> None:
    """The pieces have from four to ninety letters, so the loss of a step says little."""
    fairseq(tape, 1061)
