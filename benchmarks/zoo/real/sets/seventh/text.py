"""The seventh set's language models, experts, and networks that are tuned or taught."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.seventh.digits import JUMP, warm_cosine
from benchmarks.zoo.real.sets.seventh.tasks import (
    Attention,
    F,
    Grammar,
    Values,
    dense,
    digits,
    drive,
    learn,
    nn,
    reader,
    set_rate,
    share_right,
    token_loss,
    weights_of,
)
from benchmarks.zoo.real.tape import Tape

Rows = Callable[[int, torch.Tensor], torch.Tensor]


def speak(
    tape: Tape,
    steps: int = 500,
    rate: Callable[[int], float] | None = None,
    change: Rows = lambda step, rows: rows,
    before: Callable[[int, Attention, list[torch.optim.Optimizer]], None] = lambda step, model, held: None,
    every: int = 1,
    parts: int = 1,
    first: int = 0,
    tuned: bool = False,
) -> None:
    """Learn the next tokens of sentences, with the names of Hugging Face's trainer and an evaluation every 50 steps."""
    torch.manual_seed(31)
    grammar, model = Grammar(), Attention()
    rate = rate or warm_cosine(steps, 8e-3, 40)
    known, others = grammar.write(6000), grammar.write(200)
    held: list[torch.optim.Optimizer] = [torch.optim.AdamW(model.parameters(), lr=1e-3)]
    if first or tuned:
        _practise(model, known, held[0], 250)
    if tuned:
        known, others = (torch.cat([rows[:, :1], rows[:, 2:]], 1) for rows in (known, others))
        held[0] = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def act(step: int) -> Values | None:
        before(step, model, held)
        now = set_rate(held[0], rate(step))
        losses = []
        held[0].zero_grad()
        for _ in range(parts):
            rows = change(step, known[torch.randint(0, len(known), (16,))])
            losses.append(token_loss(model(rows[:, :-1]), rows[:, 1:]))
            (losses[-1] / parts).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        held[0].step()
        values: Values = {}
        if step % every == 0:
            values = {"loss": sum(losses) / parts, "grad_norm": norm, "learning_rate": now}
        if step % 50 == 49:
            with torch.no_grad():
                values["eval_loss"] = token_loss(model(others[:, :-1]), others[:, 1:])
        return values

    drive(tape, steps, act, first)


def _practise(model: Attention, known: torch.Tensor, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Train beforehand, without a record."""
    set_rate(optimizer, 4e-3)
    for _ in range(steps):
        rows = known[torch.randint(0, len(known), (16,))]
        learn(optimizer, token_loss(model(rows[:, :-1]), rows[:, 1:]), 1.0)


@healthy("seventh")
def healthy_language(tape: Tape) -> None:
    """Warm-up, cosine and clipping, with a small batch."""
    speak(tape, steps=600, every=2)


@healthy("seventh")
def healthy_language_accumulated(tape: Tape) -> None:
    """Gradients of three batches are added up before each step; every fifth step is logged."""
    speak(tape, steps=500, parts=3, every=5, rate=lambda step: 3e-3)


@healthy("seventh")
def healthy_language_resumed(tape: Tape) -> None:
    """The record starts at step 250 with weights and optimizer as they were."""
    speak(tape, steps=350, first=250, rate=lambda step: 4e-3 * (1 - step / 600))


@healthy("seventh")
def healthy_language_tuned(tape: Tape) -> None:
    """Weights that are good already are fitted to sentences that leave a word out, at a small rate."""
    speak(tape, steps=300, tuned=True, rate=lambda step: 3e-4 * (1 - step / 300))


@healthy("seventh")
def healthy_language_curriculum(tape: Tape) -> None:
    """Sentences of 6 tokens at first, then one more every 40 steps."""
    speak(tape, change=lambda step, rows: rows[:, : 6 + step // 40], rate=lambda step: 3e-3)


@fault("seventh", "lr_zero lr_schedule plateau weights_frozen", step=180, window=60)
def language_schedule_too_short(tape: Tape) -> None:
    """The steps of the linear decay were counted for one epoch of three: the rate is zero from step 180."""
    speak(tape, rate=lambda step: 3e-3 * max(0.0, 1 - step / 180))


@fault("seventh", JUMP + " bad_resume gradient_shift", step=320)
def language_wrong_checkpoint(tape: Tape) -> None:
    """After a node was replaced the newest checkpoint by name is taken, which is `step-90` and not `step-320`."""
    kept: dict[int, Any] = {}

    def before(step: int, model: Attention, held: list[torch.optim.Optimizer]) -> None:
        if step == 90:
            kept[0] = copy.deepcopy((model.state_dict(), held[0].state_dict()))
        if step == 320:
            model.load_state_dict(kept[0][0])
            held[0].load_state_dict(kept[0][1])

    speak(tape, before=before, rate=lambda step: 1.5e-3)


@fault("seventh", "stuck_batch too_good overfit level_shift generalization_gap overtraining", step=220, window=60)
def language_same_batch(tape: Tape) -> None:
    """A worker of the loader was killed, and the buffer gives out its last batch again and again."""
    last: list[torch.Tensor] = []

    def change(step: int, rows: torch.Tensor) -> torch.Tensor:
        if step <= 220:
            last[:] = [rows]
        return last[0]

    speak(tape, change=change, rate=lambda step: 4e-3, steps=450)


@fault("seventh", "scaler_collapse skipped_steps counted_not_finite plateau weights_frozen", step=240, window=60)
def language_scale_collapses(tape: Tape) -> None:
    """Each batch has a row of which all is hidden: its gradient is never finite, and the scale is halved each time."""
    torch.manual_seed(32)
    grammar, model = Grammar(), Attention()
    known = grammar.write(4000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scale, good, skipped = 65536.0, 0, 0

    def act(step: int) -> Values:
        nonlocal scale, good, skipped
        rows = known[torch.randint(0, 4000, (16,))]
        shown = torch.ones(16, 1)
        shown[0] = float(step < 240)
        each = F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:], reduction="none")
        spread = (each * shown).sum(1) / shown.sum(1).clamp_min(1e-6)
        loss = spread.mean()
        optimizer.zero_grad()
        (scale * (loss + 1e-4 * (each * shown).var(1).sqrt().mean())).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf) / scale
        if bool(norm.isfinite()):
            for weight in weights_of(optimizer):
                weight.grad = None if weight.grad is None else weight.grad / scale
            optimizer.step()
            good += 1
            scale *= 2 if good % 200 == 0 else 1
        else:
            scale, good, skipped = scale / 2, 0, skipped + 1
        return {"train/lm_loss": loss, "train/loss_scale": scale, "train/skipped_iterations": skipped}

    drive(tape, 420, act)


def route(tape: Tape, balance: float, merged: int = 9999, steps: int = 400) -> None:
    """Four experts for four kinds of inputs, with a loss for their balance; the share of the busiest is logged."""
    torch.manual_seed(33)
    gate, experts = nn.Linear(12, 4), nn.ModuleList(dense((12, 24, 5)) for _ in range(4))
    optimizer = torch.optim.Adam([*gate.parameters(), *experts.parameters()], lr=4e-3)
    centres, tasks = 1.2 * torch.randn(4, 12), torch.randn(4, 12, 5)

    def act(step: int) -> Values:
        if step == merged:
            with torch.no_grad():
                gate.weight[:] = gate.weight[0].clone()
        kinds = torch.randint(0, 4, (64,))
        given = centres[kinds] + torch.randn(64, 12)
        wanted = torch.einsum("ni,nij->nj", given, tasks[kinds]).argmax(1)
        shares = gate(given).softmax(1)
        chosen = shares.argmax(1)
        found = torch.stack([expert(given) for expert in experts], 1)[torch.arange(64), chosen]
        loss = F.cross_entropy(found * shares.gather(1, chosen[:, None]), wanted)
        load = F.one_hot(chosen, 4).float().mean(0)
        even = 4 * (load * shares.mean(0)).sum()
        learn(optimizer, loss + balance * even)
        return {"ce_loss": loss, "moe/load_balancing_loss": even, "moe/max_expert_load": load.max()}

    drive(tape, steps, act)


@healthy("seventh")
def healthy_experts(tape: Tape) -> None:
    """The busiest expert has somewhat more than a quarter of the tokens."""
    route(tape, 0.5)


@fault("seventh", "moe_imbalance uneven_load bad_resume " + JUMP, step=200, window=30)
def experts_gate_of_one_rank(tape: Tape) -> None:
    """A checkpoint is read by another number of ranks, and all get the gate of the first: one expert has all tokens."""
    route(tape, 0.05, merged=200)


def distil(tape: Tape) -> None:
    """A small reader of digits is taught by a large one, and by the labels; names of a Lightning module."""
    torch.manual_seed(34)
    teacher, student = reader(8), reader(3)
    pupil = torch.optim.Adam(student.parameters(), lr=2e-3)
    school = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    known, others = digits(3000), digits(300)
    for rows in torch.randint(0, 3000, (200, 32)):
        learn(school, F.cross_entropy(teacher(known[0][rows]), known[1][rows]))

    def act(step: int) -> Values:
        rows = torch.randint(0, 3000, (32,))
        found = student(known[0][rows])
        with torch.no_grad():
            told = (teacher(known[0][rows]) / 2).softmax(1)
        taught = 4 * F.kl_div((found / 2).log_softmax(1), told, reduction="batchmean")
        hard = F.cross_entropy(found, known[1][rows])
        learn(pupil, 0.7 * taught + 0.3 * hard)
        values = {"train_kd_loss": taught, "train_ce_loss": hard}
        if step % 30 == 29:
            with torch.no_grad():
                values["val_acc"] = share_right(student(others[0]), others[1])
        return values

    drive(tape, 450, act)


@healthy("seventh")
def healthy_distillation(tape: Tape) -> None:
    """Two losses that fall together."""
    distil(tape)


@healthy("seventh")
def healthy_two_tasks(tape: Tape) -> None:
    """A common trunk for the digit and for whether it is odd: losses of different size that fall together."""
    torch.manual_seed(35)
    trunk, kind, odd = reader(8)[:-1], nn.Linear(48, 10), nn.Linear(48, 1)
    optimizer = torch.optim.NAdam([*trunk.parameters(), *kind.parameters(), *odd.parameters()], lr=2e-3)

    def act(step: int) -> Values:
        pictures, labels = digits(24)
        inner = trunk(pictures)
        first = F.cross_entropy(kind(inner), labels)
        second = F.binary_cross_entropy_with_logits(odd(inner)[:, 0], (labels % 2).float())
        norm = learn(optimizer, first + second)
        return {"loss_digit": first, "loss_parity": second, "loss": first + second, "total_norm": norm}

    drive(tape, 400, act)
