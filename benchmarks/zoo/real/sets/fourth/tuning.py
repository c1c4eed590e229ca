"""Of the fourth set: models that are trained further: adapters, an old task that is forgotten, padded answers."""

from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.journal_tapes import user_run
from benchmarks.zoo.real.sets.fourth.tasks import Digits, Values, perceptron, trained, updated
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


class Adapter(nn.Module):
    """A linear layer that stays as it is, and a low-rank change of it."""

    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, layer.in_features) * 0.1)
        self.lora_B = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer and its change."""
        return self.layer(x) + 2.0 * (x @ self.lora_A.T) @ self.lora_B.T  # type: ignore[no-any-return]


def _pretrained() -> Digits:
    """A classifier of digits below five, and of those above as if they were five less."""
    task = Digits(perceptron((64, 64, 64, 10)))
    task.y, task.held_y = task.y % 5, task.held_y % 5
    optimizer = task.adam(3e-3)
    for _ in range(150):
        x, y = next(task.batches)
        updated(F.cross_entropy(task.model(x), y % 5), optimizer)
    return task


def _adapted(tape: Tape, *, forgotten: bool) -> None:
    """Adapters learn to tell all ten digits; where forgotten, the optimizer has the parameters from before."""
    task = Digits(_pretrained().model)
    before = list(task.model.parameters())
    layers = [Adapter(each) if isinstance(each, nn.Linear) else each for each in task.model]  # type: ignore[arg-type]
    task.model = nn.Sequential(*layers)
    trainable = before if forgotten else [each for each in task.model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=3e-3, weight_decay=0.0)

    def train(step: int) -> Values:
        x, y = next(task.batches)
        loss = F.cross_entropy(task.model(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return {"train/loss": loss.detach(), "train/learning_rate": 3e-3}

    def evaluate() -> Values:
        return dict(zip(("eval/loss", "eval/accuracy"), task.evaluated(), strict=True))

    trained(tape, 300, train, evaluate, watched=True, lora_r=4, lora_alpha=8)


@fault("fourth", "unused_parameters weights_frozen not_learning constant")
def adapters_not_trained(tape: Tape) -> None:
    """The optimizer was made before the adapters were put in: it has the frozen weights only."""
    _adapted(tape, forgotten=True)


@healthy("fourth")
def healthy_adapters(tape: Tape) -> None:
    """Adapters that are trained."""
    _adapted(tape, forgotten=False)


@fault("fourth", "accuracy_drop overfit divergence level_shift generalization_gap")
def old_task_forgotten(tape: Tape) -> None:
    """Fine-tuned on the digits above four only, with the rate of the pre-training: the others are forgotten."""
    task = Digits(perceptron((64, 64, 64, 10)))
    optimizer = task.adam(3e-3)
    for _ in range(200):
        task.step(optimizer)
    old, new = task.held_y < 5, task.held_y >= 5
    rows = torch.nonzero(task.y >= 5).flatten()

    def train(step: int) -> Values:
        chosen = rows[torch.randint(0, len(rows), (32,))]
        loss = F.cross_entropy(task.model(task.x[chosen]), task.y[chosen])
        norm = updated(loss, optimizer)
        return {"train/loss": loss.detach(), "train/grad_norm": norm}

    def evaluate() -> Values:
        old_loss, old_right = task.evaluated(task.held_x[old], task.held_y[old])
        loss, right = task.evaluated(task.held_x[new], task.held_y[new])
        return {
            "eval/new_loss": loss,
            "eval/new_acc": right,
            "eval/general_loss": old_loss,
            "eval/general_acc": old_right,
        }

    trained(tape, 400, train, evaluate, evaluate_every=20)


PAD, LENGTH = 0, 48


class Answers:
    """Short sums as tokens, with a prompt, an answer and much padding."""

    def __init__(self) -> None:
        torch.manual_seed(71)
        self.embed = nn.Embedding(16, 48)
        self.cell, self.head = nn.GRU(48, 64, batch_first=True), nn.Linear(64, 16)
        self.parts = nn.ModuleList([self.embed, self.cell, self.head])

    def scores(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token at each place."""
        return self.head(self.cell(self.embed(tokens))[0])  # type: ignore[no-any-return]

    def rows(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows `a + b = c d end pad pad ...`, and where the answer is."""
        a, b = torch.randint(0, 10, (2, count))
        tokens, answer = torch.full((count, LENGTH), PAD), torch.zeros(count, LENGTH, dtype=torch.bool)
        parts = (a + 1, torch.full_like(a, 11), b + 1, torch.full_like(a, 12), (a + b) // 10 + 1, (a + b) % 10 + 1)
        tokens[:, :6] = torch.stack(parts, 1)
        tokens[:, 6] = 13
        answer[:, 4:7] = True
        return tokens, answer

    def losses(self, masked: bool, count: int = 16) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The loss over the answer or over everything, how many tokens are right, and how many sums."""
        tokens, answer = self.rows(count)
        scores = self.scores(tokens[:, :-1])
        labels = torch.where(answer, tokens, -100)[:, 1:] if masked else tokens[:, 1:]
        loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)
        right = scores.argmax(2) == tokens[:, 1:]
        counted = right[labels != -100].float().mean()
        return loss, counted, right[:, 3:5].all(1).float().mean()


def _answered(tape: Tape, *, masked: bool, steps: int = 400) -> None:
    task = Answers()
    optimizer = torch.optim.AdamW(task.parts.parameters(), lr=3e-3 if masked else 1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)

    def train(step: int) -> Values:
        loss, counted, _ = task.losses(masked)
        norm = updated(loss, optimizer, 1.0)
        schedule.step()
        values: dict[str, Any] = {"loss": loss.detach(), "grad_norm": norm, "learning_rate": schedule.get_last_lr()[0]}
        return values | {"mean_token_accuracy": counted, "epoch": step / steps}

    def evaluate() -> Values:
        with torch.no_grad():
            loss, counted, right = task.losses(masked, 200)
        return {"eval_loss": loss, "eval_mean_token_accuracy": counted, "eval_exact_match": right}

    trained(tape, steps, train, evaluate, every=2, evaluate_every=40, lr_scheduler_type="linear", max_steps=steps)


@fault("fourth", "padding too_good not_learning plateau")
def padding_in_the_loss(tape: Tape) -> None:
    """Labels are not -100 where the padding is, nine tokens in ten: the loss is small, and no sum is right."""
    _answered(tape, masked=False, steps=300)


@healthy("fourth")
def healthy_answers(tape: Tape) -> None:
    """Only the answers count."""
    _answered(tape, masked=True)


@fault("fourth", "not_finite")
def everything_masked(tape: Tape) -> None:
    """Prompts are longer than the limit, so that in some batches no label is left: the mean of nothing."""
    task = Answers()
    optimizer = torch.optim.AdamW(task.parts.parameters(), lr=1e-3)
    with user_run(tape, max_seq_length=16) as run:
        for step in range(200):
            with run.step(step):
                tokens, answer = task.rows(8)
                labels = torch.where(answer, tokens, -100)[:, 1:]
                if step % 37 == 36:
                    labels = torch.full_like(labels, -100)
                loss = F.cross_entropy(task.scores(tokens[:, :-1]).flatten(0, 1), labels.flatten(), ignore_index=-100)
                norm = updated(loss, optimizer, 1.0)
                run.log({"train/loss": loss.detach(), "train/grad_norm": norm})
