"""Languages of the ninth set: adapters, experts, a recurrence of states, a student, and speech."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.ninth.tasks import (
    TOKENS,
    Adapted,
    Chains,
    F,
    Rate,
    Speaks,
    Values,
    drive,
    falling,
    half_wave,
    learn,
    next_loss,
    nn,
    set_rate,
)
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence"


@functools.cache
def pretrained() -> Any:
    """A model of one language, to be adapted to another."""
    torch.manual_seed(71)
    model, chains = Speaks(), Chains(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(160):
        rows = chains.write(24)
        learn(optimizer, next_loss(model(rows), rows))
    return model


class Tuning:
    """Adapters that are trained: cases change its parts."""

    def __init__(self, rank: int) -> None:
        self.model = copy.deepcopy(pretrained())
        for weight in self.model.parameters():
            weight.requires_grad_(False)
        self.layers = [Adapted(part[0], rank) for part in self.model.inner] + [Adapted(self.model.head, rank)]
        for part, layer in zip(self.model.inner, self.layers, strict=False):
            part[0] = layer
        self.layers.append(Adapted(self.model.mixed[0], rank))
        self.model.head, self.model.mixed[0] = self.layers[-2], self.layers[-1]
        self.begin()

    def begin(self) -> None:
        """Make the optimizer."""
        learnt = [weight for layer in self.layers for weight in (layer.down, layer.up)]
        self.optimizer = torch.optim.AdamW(learnt, lr=1e-3, weight_decay=0.0)


def same(step: int, tuning: Tuning) -> None:
    """Change nothing."""


def adapt(
    tape: Tape,
    at: Callable[[int, Tuning], None] = same,
    steps: int = 300,
    rate: Rate | None = None,
    change: Callable[[int, torch.Tensor], torch.Tensor] = lambda step, rows: rows,
    weight: Callable[[int], float] = lambda step: 1.0,
    rank: int = 6,
    every: int = 2,
    clip: float = 1.0,
) -> None:
    """Adapt a model to another language, in the names that the Trainer of Transformers gives to others."""
    tuning, chains = Tuning(rank), Chains(2, kinds=1)
    torch.manual_seed(72)
    others = chains.write(100)
    rates = rate or half_wave(steps, 8e-3, 20)

    def act(step: int) -> Values | None:
        at(step, tuning)
        now = set_rate(tuning.optimizer, rates(step))
        rows = chains.write(8)
        loss = weight(step) * next_loss(tuning.model(rows), change(step, rows))
        norm = learn(tuning.optimizer, loss, clip)
        found: Values = {}
        if step % every == 0:
            found = {"train/loss": loss, "train/grad_norm": norm, "train/learning_rate": now, "train/epoch": step / 150}
        if step % 50 == 49:
            with torch.no_grad():
                found["eval/loss"] = next_loss(tuning.model(others), others)
        return found

    drive(tape, steps, act)


@healthy("ninth")
def healthy_adapters(tape: Tape) -> None:
    """Adapters learn another language under a cosine; the loss falls from far above that of guessing."""
    adapt(tape)


@healthy("ninth")
def healthy_adapters_of_rank_one(tape: Tape) -> None:
    """The thinnest adapters at one rate, every fifth step logged: it falls slowly and does not get far."""
    adapt(tape, rank=1, rate=lambda step: 5e-3, every=5, steps=400)


@fault("ninth", "not_learning plateau weights_frozen vanishing_gradients unused_parameters constant")
def adapters_both_factors_zero(tape: Tape) -> None:
    """Both factors of each adapter begin at zero, so that neither has a gradient: the loss stays, the norm is 0."""

    def at(step: int, tuning: Tuning) -> None:
        if step == 0:
            for layer in tuning.layers:
                nn.init.zeros_(layer.down)

    adapt(tape, at, steps=260)


@fault("ninth", JUMP + " bad_resume gradient_shift exploding_gradients", step=180)
def adapters_merged_and_kept(tape: Tape) -> None:
    """The adapters are merged into the model for an export at step 180, and stay in place: all counts twice."""

    def at(step: int, tuning: Tuning) -> None:
        if step == 180:
            for layer in tuning.layers:
                layer.merge()

    adapt(tape, at)


@fault("ninth", JUMP + " bad_resume gradient_shift exploding_gradients", step=200)
def adapters_not_in_the_checkpoint(tape: Tape) -> None:
    """After a restart at step 200 the adapters are new ones: only the model had been saved."""

    def at(step: int, tuning: Tuning) -> None:
        if step == 200:
            for layer in tuning.layers:
                nn.init.zeros_(layer.up)
                nn.init.normal_(layer.down, std=0.2)
            tuning.begin()

    adapt(tape, at)


@fault("ninth", "not_finite", step=130, window=4)
def adapters_no_label_left(tape: Tape) -> None:
    """Prompts fill the whole length in one batch, so that no label is left: the mean of nothing."""

    def change(step: int, rows: torch.Tensor) -> torch.Tensor:
        return torch.full_like(rows, -100) if step == 130 else rows

    adapt(tape, change=change, steps=220, every=1)


@fault("ninth", JUMP + " gradient_shift exploding_gradients", step=160)
def adapters_sum_over_parts(tape: Tape) -> None:
    """A new version adds the losses of four parts of a batch up, and no longer divides them by their number."""
    adapt(tape, weight=lambda step: 4.0 if step >= 160 else 1.0)


@fault("ninth", JUMP, step=170)
def adapters_labels_moved_twice(tape: Tape) -> None:
    """The collator moves the labels by one since an update, and the model does so too: each token but the next."""

    def change(step: int, rows: torch.Tensor) -> torch.Tensor:
        return torch.cat([rows[:, 1:], rows[:, :1]], 1) if step >= 170 else rows

    adapt(tape, change=change, rate=falling(300, 6e-3))


def staircase(tape: Tape) -> None:
    """Tune all weights on few rows for four epochs, as torchtune logs it; each epoch begins a step lower."""
    model, chains = copy.deepcopy(pretrained()), Chains(4, kinds=1, sure=0.7)
    torch.manual_seed(73)
    known = chains.write(480)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def act(step: int) -> Values | None:
        rows = known[(step * 6) % 480 : (step * 6) % 480 + 6]
        now = set_rate(optimizer, half_wave(320, 1.5e-3, 10)(step))
        loss = next_loss(model(rows), rows)
        learn(optimizer, loss)
        return {"loss": loss, "lr": now, "tokens_per_second_per_gpu": 1900 + 60 * torch.randn(1)}

    drive(tape, 320, act)


@healthy("ninth")
def healthy_tuning_in_epochs(tape: Tape) -> None:
    """The loss falls at the beginning of each epoch, as rows are seen again, and is level in between."""
    staircase(tape)


class Experts(torch.nn.Module):  # type: ignore[misc]
    """Four small networks, of which a router chooses one for each token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.route = nn.Linear(width, 4, bias=False)
        self.parts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 48), nn.ReLU(), nn.Linear(48, width)) for _ in range(4)
        )
        self.uneven = self.balance = torch.zeros(())

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """What the chosen one says, weighted by how surely it was chosen."""
        chances = self.route(given).softmax(-1)
        sure, chosen = chances.max(-1)
        share = F.one_hot(chosen, 4).float().mean((0, 1))
        self.balance = 4 * (share * chances.mean((0, 1))).sum()
        self.uneven = 4 * share.max() - 1
        made = torch.stack([part(given) for part in self.parts], -2)
        found: torch.Tensor = made.gather(-2, chosen[..., None, None].expand(*chosen.shape, 1, given.shape[-1]))[
            ..., 0, :
        ]
        return found * sure[..., None]


def divide(tape: Tape, steps: int = 300, weight: float = 0.05, pushed: int = 9999) -> None:
    """Train a language with experts, in Megatron's names; from a step on the first expert has an advantage."""
    torch.manual_seed(74)
    model, chains = Speaks(), Chains(5, kinds=4)
    experts = Experts(32)
    model.inner[0] = experts
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rate = half_wave(steps, 5e-3, 20, 5e-4)

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, rate(step))
        if step == pushed:
            with torch.no_grad():
                experts.route.weight[1:] = experts.route.weight[:1] - 0.5 * model.norms[1].weight.sign()
                experts.route.weight[0] += 3 * model.norms[1].bias
        rows = chains.write(16)
        loss = next_loss(model(rows), rows)
        norm = learn(optimizer, loss + (weight if step < pushed else 0.0) * experts.balance, 1.0)
        if step % 2:
            return None
        found = {"lm loss": loss, "load_balancing_loss": experts.balance, "grad-norm": norm, "learning-rate": now}
        return found | {"max_vio/mean": experts.uneven}

    drive(tape, steps, act)


@healthy("ninth")
def healthy_experts_in_balance(tape: Tape) -> None:
    """The load differs by some ten percent between experts, and jumps about."""
    divide(tape)


def one_expert(tape: Tape) -> None:
    """Train with experts whose router prefers one from a step on."""
    torch.manual_seed(75)
    model, chains = Speaks(), Chains(6, kinds=4)
    experts = Experts(32)
    model.inner[0] = experts
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    favour = torch.zeros(4)
    experts.route = nn.Linear(32, 4)

    def act(step: int) -> Values | None:
        if step == 150:
            favour[2] = 8.0
            with torch.no_grad():
                experts.route.bias += favour
        rows = chains.write(16)
        loss = next_loss(model(rows), rows)
        norm = learn(optimizer, loss + (0.05 if step < 150 else 0.0) * experts.balance, 1.0)
        return {"loss": loss, "moe/max_vio": experts.uneven, "moe/aux_loss": experts.balance, "optim/grad_norm": norm}

    drive(tape, 260, act)


@fault("ninth", "moe_imbalance level_shift", step=150, window=15)
def experts_bias_read_as_weight(tape: Tape) -> None:
    """The bias that was to even out the load has the wrong sign after a restart: one expert gets every token."""
    one_expert(tape)


class States(torch.nn.Module):  # type: ignore[misc]
    """A linear recurrence over tokens, with a decay for each state that may be kept below one."""

    def __init__(self, width: int = 40, bound: bool = True) -> None:
        super().__init__()
        self.tokens, self.decay = nn.Embedding(12, width), nn.Parameter(torch.randn(width) + (1.0 if bound else 0.0))
        self.gate, self.head = nn.Linear(width, width), nn.Linear(width, 12)
        self.bound = bound

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Scores at each place."""
        given = self.tokens(rows)
        keep = self.decay.sigmoid() if self.bound else 0.95 + 0.15 * self.decay
        state, found = torch.zeros_like(given[:, 0]), []
        for at in range(rows.shape[1]):
            state = keep * state + given[:, at]
            found.append(state)
        states = torch.stack(found, 1)
        scores: torch.Tensor = self.head(states * self.gate(given).sigmoid())
        return scores


def recall(
    tape: Tape, bound: bool = True, rate: float = 5e-3, steps: int = 300, length: Rate = lambda step: 20
) -> None:
    """Say which of the first tokens came first, a while later, as Flax's loops log it."""
    torch.manual_seed(76)
    model = States(bound=bound)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def act(step: int) -> Values | None:
        rows = torch.randint(2, 12, (24, int(length(step))))
        rows[:, 3:-1] = torch.randint(0, 2, rows[:, 3:-1].shape)
        wanted = torch.where(rows[:, :3] > 6, 1, 0).sum(1)
        scores = model(rows)[:, -1]
        loss = F.cross_entropy(scores, wanted)
        norm = learn(optimizer, loss)
        right = (scores.argmax(-1) == wanted).float().mean()
        return {"train_loss": loss, "train_accuracy": right, "grads_l2": norm} if step % 3 == 0 else None

    drive(tape, steps, act)


@healthy("ninth")
def healthy_states(tape: Tape) -> None:
    """Counting over a distance, with decays that stay below one."""
    recall(tape, steps=400)


@fault("ninth", "not_finite divergence exploding_gradients spike absurd_loss not_learning oscillation")
def states_beyond_one(tape: Tape) -> None:
    """The decays are no longer kept below one and the rows are long: states grow, losses of many thousands."""
    recall(tape, bound=False, rate=2e-2, length=lambda step: 60, steps=240)


def follow(tape: Tape, heat: Rate, other: int = 9999, steps: int = 280) -> None:
    """Teach a smaller model what a larger one says; from a step on the teacher has its tokens in another order."""
    teacher, chains = pretrained(), Chains(1)
    torch.manual_seed(77)
    student = Speaks(width=16)
    optimizer = torch.optim.AdamW(student.parameters(), lr=4e-3)
    order, rate = torch.randperm(TOKENS), falling(steps, 6e-3, 20)

    def act(step: int) -> Values | None:
        rows, now = chains.write(12), set_rate(optimizer, rate(step))
        with torch.no_grad():
            said = teacher(rows)[..., order] if step >= other else teacher(rows)
        scores, hot = student(rows), heat(step)
        away = F.kl_div((scores / hot).log_softmax(-1), (said / hot).softmax(-1), reduction="batchmean") / 16
        own = next_loss(scores, rows)
        learn(optimizer, 0.7 * away + 0.3 * own, 1.0)
        same_word = (said.argmax(-1) == scores.argmax(-1)).float().mean()
        values = {"distill/kd_loss": away, "distill/ce_loss": own, "distill/agreement": same_word, "lr": now}
        return values if step % 2 == 0 else None

    drive(tape, steps, act)


@healthy("ninth")
def healthy_student(tape: Tape) -> None:
    """A student nears its teacher under a falling rate."""
    follow(tape, lambda step: 2.0)


@fault("ninth", JUMP + " accuracy_drop", step=150)
def student_of_another_vocabulary(tape: Tape) -> None:
    """The teacher is served by another build from step 150 on, whose tokens have other numbers."""
    follow(tape, lambda step: 2.0, other=150)


@fault("ninth", JUMP + " too_good plateau constant", step=140)
def student_far_too_hot(tape: Tape) -> None:
    """A sweep sets the temperature to 40 and not to 4: both are all but even, and nothing is left to learn from."""
    follow(tape, lambda step: 40.0 if step >= 140 else 2.0)


def sounds(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Eighteen frames of six features in which three of seven sounds follow each other, and these, from one."""
    said = torch.randint(1, 8, (count, 3))
    voices = torch.cos(torch.arange(8.0)[:, None] * torch.arange(1.0, 7.0) * 2.3)
    ends = torch.randint(4, 8, (count, 2)).cumsum(1)
    which = (torch.arange(18)[None, :, None] >= ends[:, None]).sum(-1)
    return voices[said.gather(1, which)] + 0.4 * torch.randn(count, 18, 6), said


def listen(tape: Tape, rate: Rate, frames: Callable[[int], int] = lambda step: 18, steps: int = 360) -> None:
    """Recognise sounds by CTC, in the names of SpeechBrain and NeMo; the frames may be cut."""
    torch.manual_seed(78)
    model = nn.Sequential(nn.Conv1d(6, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 32, 3, padding=1), nn.ReLU())
    head = nn.Linear(32, 8)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=2e-3)

    def act(step: int) -> Values | None:
        now, (heard, said) = set_rate(optimizer, rate(step)), sounds(12)
        heard = heard[:, : frames(step)]
        chances = head(model(heard.transpose(1, 2)).transpose(1, 2)).log_softmax(-1)
        lengths = (torch.full((12,), heard.shape[1]), torch.full((12,), 3))
        loss = F.ctc_loss(chances.transpose(0, 1), said, *lengths)
        if not loss.isfinite():
            return {"train_ctc_loss": loss, "learning_rate": now}
        learn(optimizer, loss)
        found = {"train_ctc_loss": loss, "learning_rate": now}
        if step % 20 == 19:
            found["val_wer"] = torch.tensor(1 - right(chances, said))
        return found

    drive(tape, steps, act)


def right(chances: torch.Tensor, said: torch.Tensor) -> float:
    """The share of rows in which exactly what was said is recognised."""
    alike = 0
    for row, wanted in zip(chances.argmax(-1).tolist(), said.tolist(), strict=True):
        heard = [now for last, now in zip([0, *row], row, strict=False) if now not in (0, last)]
        alike += heard == [now for last, now in zip([0, *wanted], wanted, strict=False) if now != last]
    return alike / len(said)


@healthy("ninth")
def healthy_listening(tape: Tape) -> None:
    """First nothing but blanks, then one sound after another."""
    listen(tape, half_wave(360, 5e-3, 20, 1e-4))


@fault("ninth", "not_finite", step=220, window=4)
def listening_cut_too_short(tape: Tape) -> None:
    """A bucket of recordings of two frames, shorter than what was said: the loss is infinite."""
    listen(tape, lambda step: 3e-3, frames=lambda step: 2 if step in (220, 221) else 18, steps=300)


@fault("ninth", "lr_zero lr_schedule plateau not_learning")
def listening_rate_gone(tape: Tape) -> None:
    """The rate is multiplied by 0.9 after each batch and not after each epoch: it is gone before a word is learnt."""
    listen(tape, lambda step: 3e-3 * 0.9**step, steps=300)
