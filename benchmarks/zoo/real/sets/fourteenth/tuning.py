"""The fourteenth set: fine-tuning of small language models with answers and with preferences, in the names of TRL."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fourteenth.schedules import Rate, cosine, linear, steady
from benchmarks.zoo.real.sets.fourteenth.tasks import Fit, Pair, Values, drawn, still
from benchmarks.zoo.real.sets.fourteenth.texts import Verses, share_right, trained
from benchmarks.zoo.real.tape import Tape

Task = Callable[[Verses, int], Pair]


def answered(verses: Verses, count: int) -> Pair:
    """Twelve signs and an answer of ten in some metre that takes two places at once; only the answer counts."""
    lines = verses.lines(count, 12)
    metre = verses.after[torch.randint(0, len(verses.after), (count,))]
    rows = [lines[:, -1]]
    for _ in range(10):
        follows = metre.gather(1, (metre.gather(1, rows[-1][:, None] - 1)) - 1)[:, 0]
        stray = torch.randint(1, 32, (count,))
        rows.append(torch.where(torch.rand(count) < 0.85, follows, stray))
    text = torch.cat((lines, torch.stack(rows[1:], 1)), 1)
    wanted = text[:, 1:].clone()
    wanted[:, :12] = -100
    return text[:, :-1], wanted


def continued(verses: Verses, count: int) -> Pair:
    """Twelve signs and the ten that go on as the weights expect; only these count."""
    rows, wanted = verses.pair(count, 22)
    wanted[:, :12] = -100
    return rows, wanted


def sft(
    tape: Tape, seed: int, rows: int | None, rate: Rate, steps: int = 240, hole: int = -1, task: Task = answered
) -> None:
    """Fine-tuning of a decoder that knows the verses on answers, as TRL's SFTTrainer logs it."""
    model, verses = trained()
    torch.manual_seed(seed)
    held = task(verses, 200)
    given = None if rows is None else task(verses, rows)
    batch: Callable[[], Pair] = (lambda: task(verses, 16)) if given is None else drawn(given, 16)

    def loss(model: Any, pair: Any) -> torch.Tensor:
        scores = model(pair[0])
        counts = (pair[1] >= 0) & (not model.training or len(fit.losses) != hole)
        if model.training:
            right = (scores.argmax(-1) == pair[1])[counts].float().mean()
            fit.extra = {"mean_token_accuracy": right.item(), "epoch": len(fit.losses) * 16 / (rows or 3840)}
        return F.cross_entropy(scores[counts], pair[1][counts])

    def seen(fit: Fit) -> Values:
        return {"eval_loss": fit.seen(held), "eval_mean_token_accuracy": share_right(model, held)}

    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0, fused=True)
    names = ("loss", "learning_rate", "grad_norm")
    fit = Fit(model, batch, loss, steps, rate, names, optimizer, evaluate=seen, evaluate_every=40, every=5)
    fit.run(tape)


SFT = {"trainer": "SFTTrainer", "logging_steps": 5, "eval_steps": 40, "per_device_train_batch_size": 16}


@healthy("fourteenth", config=SFT | {"learning_rate": 2e-3, "lr_scheduler_type": "cosine", "num_train_epochs": 1})
def healthy_sft(tape: Tape) -> None:
    """One pass over answers in a metre that the weights do not expect."""
    sft(tape, 1461, None, cosine(240, 2e-3, 16))


@healthy("fourteenth", config=SFT | {"learning_rate": 1e-3, "lr_scheduler_type": "linear", "num_train_epochs": 2})
def healthy_sft_two_epochs(tape: Tape) -> None:
    """Two passes over two thousand answers, without a warm-up."""
    sft(tape, 1464, 2048, linear(256, 1e-3), 256)


@fault("fourteenth", "not_finite", step=150, window=6, config=SFT | {"learning_rate": 2e-3, "max_length": 12})
def sft_batch_without_answers(tape: Tape) -> None:
    """In the batch at 150 the limit of the length cuts all answers off: no label counts, and the mean is not finite."""
    sft(tape, 1465, None, cosine(240, 2e-3, 16), hole=150)


@fault(
    "fourteenth",
    "overfit",
    config=SFT | {"learning_rate": 1e-3, "lr_scheduler_type": "constant", "num_train_epochs": 60, "dataset_size": 96},
)
def sft_ninety_answers_by_heart(tape: Tape) -> None:
    """Ninety-six answers are seen sixty times: the loss of what is held out turns after a few epochs and rises."""
    sft(tape, 1462, 96, steady(1e-3), 360)


@fault(
    "fourteenth",
    "divergence level_shift not_learning",
    config=SFT | {"learning_rate": 0.1, "lr_scheduler_type": "linear", "warmup_steps": 32},
)
def sft_rate_by_a_hundred(tape: Tape) -> None:
    """The rate is a hundred times too high: with the warm-up the loss rises far over that of the first step."""
    sft(tape, 1463, None, linear(4000, 0.1, 32), task=continued)


class Writer(nn.Module):  # type: ignore[misc]
    """A recurrent network that writes sums: ten digits, a plus, an equals and an end."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.signs, self.head = nn.Embedding(13, 32), nn.Linear(width, 13)
        self.cell = nn.GRU(32, width, batch_first=True)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The scores of the next sign at each place."""
        return self.head(self.cell(self.signs(rows))[0])

    def write(self, asked: torch.Tensor, most: int) -> torch.Tensor:
        """Answers of up to so many signs; after an end there are only ends."""
        over, found = torch.zeros(len(asked), dtype=torch.bool), []
        with torch.no_grad():
            out, state = self.cell(self.signs(asked))
            for _ in range(most):
                sign = torch.multinomial(self.head(out[:, -1]).softmax(-1), 1)
                sign[over] = END
                over |= sign[:, 0] == END
                found.append(sign)
                out, state = self.cell(self.signs(sign), state)
        return torch.cat(found, 1)


PLUS, EQUALS, END = 10, 11, 12


def sums(count: int) -> Pair:
    """Questions of two or three digits to add, and the two digits and the end that are right."""
    a, b, c = torch.randint(0, 10, (3, count))
    c = torch.where(torch.rand(count) < 0.5, c, 0)
    plus, equals = torch.full((count,), PLUS), torch.full((count,), EQUALS)
    total = a + b + c
    right = torch.stack((total // 10, total % 10, torch.full((count,), END)), 1)
    return torch.stack((a, plus, b, plus, c, equals), 1), right


def said(model: Any, asked: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """The scores of the signs of answers, as logarithms of chances for all signs."""
    found: torch.Tensor = model(torch.cat((asked, answers[:, :-1]), 1))[:, asked.shape[1] - 1 :].log_softmax(-1)
    return found


def chosen_of(scores: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """The logarithm of the chance of each sign that was written."""
    return scores.gather(-1, answers[..., None])[..., 0]


def writer() -> Writer:
    """A writer of sums that has seen many wrong ones."""
    return copy.deepcopy(_writer())


@functools.cache
def _writer() -> Writer:
    torch.manual_seed(1470)
    model = Writer()
    optimizer = torch.optim.Adam(model.parameters(), 0.012, fused=True)
    for _ in range(200):
        asked, right = sums(96)
        off = torch.rand(96) < 0.3
        right[off, 1] = torch.randint(0, 10, (int(off.sum()),))
        loss = -chosen_of(said(model, asked, right), right).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def dpo(tape: Tape, seed: int, rate: Rate, same: bool = False, beta: float = 0.1, steps: int = 200) -> None:
    """Preferences between right and wrong sums, as TRL's DPOTrainer logs them."""
    model = writer()
    torch.manual_seed(seed)
    reference = model if same else still(model)

    def loss(model: Any, pairs: Any) -> torch.Tensor:
        asked, good, bad = pairs
        own = [chosen_of(said(model, asked, each), each).sum(1) for each in (good, bad)]
        with torch.no_grad():
            first = [chosen_of(said(reference, asked, each), each).sum(1) for each in (good, bad)]
        rewards = [beta * (mine - its) for mine, its in zip(own, first, strict=True)]
        margins = rewards[0] - rewards[1]
        fit.extra = {
            "rewards/chosen": rewards[0].mean().item(),
            "rewards/rejected": rewards[1].mean().item(),
            "rewards/margins": margins.mean().item(),
            "rewards/accuracies": (margins > 0).float().mean().item(),
            "logps/chosen": own[0].mean().item(),
            "logps/rejected": own[1].mean().item(),
        }
        return -F.logsigmoid(margins).mean()

    def pairs() -> tuple[torch.Tensor, ...]:
        asked, good = sums(48)
        bad = good.clone()
        place = torch.randint(0, 2, (48,))
        bad[torch.arange(48), place] = (bad[torch.arange(48), place] + torch.randint(1, 10, (48,))) % 10
        swap = torch.rand(48) < 0.15
        good[swap], bad[swap] = bad[swap], good[swap]
        return asked, good, bad

    fit = Fit(model, pairs, loss, steps, rate, ("loss", "learning_rate", "grad_norm"), clip=10.0)
    fit.run(tape)


DPO = {"trainer": "DPOTrainer", "beta": 0.1, "loss_type": "sigmoid", "logging_steps": 1, "max_steps": 200}


@healthy("fourteenth", config=DPO | {"learning_rate": 3e-4, "lr_scheduler_type": "linear"})
def healthy_dpo(tape: Tape) -> None:
    """Preferences of which one in seven is the wrong way round."""
    dpo(tape, 1471, linear(200, 3e-4, 20))


@fault(
    "fourteenth", "not_learning constant plateau", config=DPO | {"learning_rate": 3e-4, "lr_scheduler_type": "linear"}
)
def dpo_compared_with_itself(tape: Tape) -> None:
    """The reference is the same object as the policy: each margin is 0 and the loss ln 2, while the answers drift."""
    dpo(tape, 1472, linear(200, 3e-4, 20), same=True)


@fault(
    "fourteenth",
    "chosen_falls",
    config=DPO | {"learning_rate": 0.03, "lr_scheduler_type": "constant"},
)
def dpo_rate_of_pretraining(tape: Tape) -> None:
    """A rate that is a hundred times too high: chosen answers become as unlikely as the rejected ones were."""
    dpo(tape, 1473, steady(0.03))
