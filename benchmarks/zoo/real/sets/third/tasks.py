"""The third set, tasks: factors, partial fits, a student, adapters, two tasks, experts, a graph, sequences."""

import math
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

from benchmarks.zoo.real.change import add_fault, add_healthy
from benchmarks.zoo.real.journal_tapes import user_run
from benchmarks.zoo.real.sets.third.digits import digits
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


def _drawn(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    points, labels, *_ = digits()
    at = torch.randint(0, 1400, (count,))
    return points[at], labels[at]


def _learnt(model: Any, steps: int) -> None:
    """Train a network on digits, before the run begins."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        points, labels = _drawn(128)
        optimizer.zero_grad()
        F.cross_entropy(model(points), labels).backward()
        optimizer.step()


def _update(optimizer: Any, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def factors(tape: Tape, epochs: int = 40, shifted: int | None = None) -> None:
    """Factors of a table in NumPy, logged once an epoch; the columns are off by one from an epoch on."""
    random = np.random.default_rng(0)
    rows, columns = random.normal(size=(80, 4)), random.normal(size=(60, 4))
    known = [
        (i, j, rows[i] @ columns[j] / 2 + 0.1 * random.normal())
        for i in range(80) for j in range(60) if random.random() < 0.4
    ]  # fmt: skip
    order = random.permutation(len(known))
    train, held_out = [known[at] for at in order[:-300]], [known[at] for at in order[-300:]]
    left, right = 0.1 * random.normal(size=(80, 4)), 0.1 * random.normal(size=(60, 4))
    with user_run(tape, lr=0.02, factors=4) as run:
        for epoch in range(epochs):
            with run.step(epoch):
                total = 0.0
                for i, given, value in train:
                    j = (given + 1) % 60 if shifted is not None and epoch >= shifted else given
                    error = value - left[i] @ right[j]
                    total += error * error
                    left[i], right[j] = (
                        left[i] + 0.02 * (error * right[j] - 0.1 * left[i]),
                        right[j] + 0.02 * (error * left[i] - 0.1 * right[j]),
                    )
                missed = [(value - left[i] @ right[j]) ** 2 for i, j, value in held_out]
                run.log({"train_rmse": math.sqrt(total / len(train)), "test_rmse": math.sqrt(np.mean(missed))})


def partial_fits(tape: Tape, shuffled: int | None = None) -> None:
    """A linear classifier of scikit-learn, fitted part by part; labels are shuffled from a step on."""
    points, labels, *held_out = (each.numpy() for each in digits())
    random, classes = np.random.default_rng(0), list(range(10))
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.02, random_state=0)
    with user_run(tape, alpha=1e-4, model="SGDClassifier") as run:
        for step in range(420):
            part = slice(step % 7 * 200, step % 7 * 200 + 200)
            wanted = labels[part] if shuffled is None or step < shuffled else random.permutation(labels[part])
            with run.step(step):
                with run.span("partial_fit"):
                    model.partial_fit(points[part], wanted, classes=classes)
                lost = [
                    log_loss(y, model.predict_proba(x).clip(1e-12), labels=classes)
                    for x, y in ((points[part], wanted), (held_out[0], held_out[1]))
                ]
                accuracy = model.score(points[part], wanted)
                run.log({"log_loss": lost[0], "accuracy": accuracy, "valid/log_loss": lost[1]})


def student(tape: Tape, renumbered: bool = False) -> None:
    """A layer learns from a network and from labels; the classes of the teacher may be in another order."""
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    _learnt(teacher, 150)
    model, order = nn.Linear(64, 10), torch.randperm(10) if renumbered else torch.arange(10)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with user_run(tape, watched=True, temperature=4.0, lr=2e-3) as run:
        for step in range(500):
            with run.step(step):
                points, labels = _drawn(64)
                wanted, scores = teacher(points).detach()[:, order], model(points)
                soft = 16 * F.kl_div((scores / 4).log_softmax(1), (wanted / 4).softmax(1), reduction="batchmean")
                hard = F.cross_entropy(scores, labels)
                loss = 0.5 * soft + 0.5 * hard
                _update(optimizer, loss)
                values = {"distill/kd_loss": soft, "distill/ce_loss": hard, "distill/total_loss": loss}
                if step % 25 == 24:
                    right = model(digits()[2]).argmax(1) == digits()[3]
                    values["val/accuracy"] = right.float().mean()
                run.log(values, category="trainer")


class Adapter(nn.Module):
    """A frozen layer with a small one beside it, of which one half begins at zero; or both."""

    def __init__(self, layer: Any, zero: bool) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(4, layer.in_features) * (0.0 if zero else 0.1))
        self.up = nn.Parameter(torch.zeros(layer.out_features, 4))

    def forward(self, given: torch.Tensor) -> Any:
        """The sum of both."""
        return self.layer(given) + given @ self.down.T @ self.up.T


def adapters(tape: Tape, zero: bool = False) -> None:
    """A trained network learns other labels by adapters."""
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    _learnt(base, 100)
    model = nn.Sequential(Adapter(base[0], zero), nn.ReLU(), Adapter(base[2], zero))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=5e-3)
    with user_run(tape, watched=True, lr=5e-3, r=4) as run:
        for step in range(350):
            with run.step(step):
                points, labels = _drawn(64)
                loss = F.cross_entropy(model(points), (labels * 3 + 1) % 10)
                _update(optimizer, loss)
                run.log({"sft/loss": loss, "lr": 5e-3}, category="trainer")


def two_tasks(tape: Tape, detached: bool = False) -> None:
    """Classes and the amount of ink from one network, with learned weights; one of the losses may be cut off."""
    torch.manual_seed(0)
    shared, classes, ink = nn.Sequential(nn.Linear(64, 48), nn.ReLU()), nn.Linear(48, 10), nn.Linear(48, 1)
    weights = nn.Parameter(torch.zeros(2))
    everything = [*shared.parameters(), *classes.parameters(), *ink.parameters(), weights]
    optimizer = torch.optim.Adam(everything, lr=2e-3)
    with user_run(tape, lr=2e-3) as run:
        for step in range(450):
            with run.step(step):
                points, labels = _drawn(48)
                hidden = shared(points)
                scores = classes(hidden).detach() if detached else classes(hidden)
                first, second = F.cross_entropy(scores, labels), F.mse_loss(ink(hidden)[:, 0], points.sum(1) / 20)
                loss = (-weights).exp()[0] * first + (-weights).exp()[1] * second + weights.sum()
                _update(optimizer, loss)
                values = {"task/digit_loss": first, "task/ink_loss": second, "total_loss": loss}
                run.log({key: each.detach() for key, each in values.items()}, category="trainer")


def experts(tape: Tape, balance: float = 0.02, drift: float = 0.0) -> None:
    """Six experts, of which a router chooses one; it may drift to one of them, and does so by itself."""
    torch.manual_seed(0)
    router = nn.Linear(64, 6)
    each = nn.ModuleList(nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10)) for _ in range(6))
    optimizer = torch.optim.Adam([*router.parameters(), *each.parameters()], lr=2e-3)
    with user_run(tape, lr=2e-3, num_experts=6) as run:
        for step in range(450):
            with run.step(step):
                points, labels = _drawn(64)
                chances = (router(points) + torch.eye(6)[2] * max(0, step - 150) * drift).softmax(1)
                chosen = chances.argmax(1, keepdim=True)
                scores = torch.stack([expert(points) for expert in each], 1)
                scores = scores.gather(1, chosen[:, :, None].expand(-1, 1, 10))[:, 0] * chances.gather(1, chosen)
                share = F.one_hot(chosen[:, 0], 6).float().mean(0)
                uneven = 6 * (share * chances.mean(0)).sum()
                loss = F.cross_entropy(4 * scores, labels)
                _update(optimizer, loss + balance * uneven)
                values = {"loss": loss, "moe/load_balancing_loss": uneven, "moe/max_expert_fraction": share.max()}
                values["moe/router_entropy"] = -(chances * chances.clamp_min(1e-9).log()).sum(1).mean()
                run.log(values, category="trainer")


def graph(tape: Tape, epochs: int = 100, lr: float = 0.2, scaled: bool = True) -> None:
    """Classes of the nodes of a graph, all at once; sums of neighbours that are not scaled grow."""
    torch.manual_seed(0)
    classes = torch.randint(0, 4, (240,))
    edges = (torch.rand(240, 240) < torch.where(classes[:, None] == classes[None], 0.12, 0.015)).float().triu(1)
    edges = edges + edges.T + torch.eye(240)
    given = 0.4 * F.one_hot(classes, 4).float() + torch.randn(240, 4)
    size = edges.sum(1).rsqrt()
    edges = size[:, None] * edges * size[None] if scaled else 3 * edges
    first, second = nn.Linear(4, 24), nn.Linear(24, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=lr, momentum=0.9)
    with user_run(tape, watched=True, lr=lr) as run:
        for epoch in range(epochs):
            with run.step(epoch):
                scores = edges @ second(F.relu(edges @ first(edges @ given)))
                loss, held_out = (F.cross_entropy(scores[a:b], classes[a:b]) for a, b in ((0, 120), (120, 240)))
                _update(optimizer, loss)
                right = (scores.argmax(1) == classes).float()
                values = {"train_loss": loss, "train_acc": right[:120].mean(), "test_acc": right[120:].mean()}
                run.log(values | {"test_loss": held_out.detach()})


def reversal(tape: Tape, padded: int | None = None) -> None:
    """Sequences are written backwards; logged at every fifth step. From a step on only padding is wanted."""
    torch.manual_seed(0)
    embed, head = nn.Embedding(12, 24), nn.Linear(48, 12)
    reader, writer = nn.GRU(24, 48, batch_first=True), nn.GRU(24, 48, batch_first=True)
    weights = [each for part in (embed, head, reader, writer) for each in part.parameters()]
    optimizer = torch.optim.Adam(weights, lr=3e-3)
    with user_run(tape, lr=3e-3, clip=1.0) as run:
        for step in range(400):
            with run.step(step):
                given = torch.randint(0, 10, (32, 5))
                wanted = given.flip(1) if padded is None or step < padded else torch.full_like(given, 10)
                begun = torch.cat([torch.full((32, 1), 11), wanted[:, :-1]], 1)
                scores = head(writer(embed(begun), reader(embed(given))[1])[0])
                loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
                right = (scores.argmax(-1) == wanted).float().mean()
                if step % 5 == 0:
                    run.log({"nll": loss, "token_accuracy": right, "gnorm": norm}, category="trainer")


add_healthy("third", "healthy_factors", factors)
add_fault("third", "factors_shifted", "level_shift spike divergence", factors, shifted=30, epochs=60)
add_healthy("third", "healthy_partial_fits", partial_fits)
add_fault(
    "third", "partial_fits_shuffled", "level_shift spike accuracy_drop divergence overfit", partial_fits, shuffled=200
)
add_healthy("third", "healthy_student", student)
add_fault(
    "third", "student_of_other_classes", "plateau not_learning accuracy_drop divergence absurd_loss", student,
    renumbered=True,
)  # fmt: skip
add_healthy("third", "healthy_adapters", adapters)
add_fault(
    "third", "adapters_at_zero", "weights_frozen not_learning plateau constant vanishing_gradients unused_parameters",
    adapters, zero=True,
)  # fmt: skip
add_healthy("third", "healthy_two_tasks", two_tasks)
add_fault(
    "third", "two_tasks_one_detached", "not_learning plateau constant weights_frozen unused_parameters", two_tasks,
    detached=True,
)  # fmt: skip
add_healthy("third", "healthy_experts", experts)
add_fault("third", "experts_one_chosen", "moe_imbalance entropy_collapse level_shift", experts, balance=0.0, drift=0.2)
add_healthy("third", "healthy_graph", graph)
add_fault(
    "third", "graph_not_scaled",
    "exploding_gradients absurd_loss divergence spike not_learning not_finite oscillation", graph, scaled=False,
    lr=0.4, epochs=150,
)  # fmt: skip
add_healthy("third", "healthy_reversal", reversal)
add_fault("third", "reversal_all_padding", "too_good level_shift stuck_batch", reversal, padded=200)
