"""Pairs, preferences, teachers and rounded weights of the sixth set."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.sixth.pictures import JUMP
from benchmarks.zoo.real.sets.sixth.tasks import F, Values, convolutions, descend, fit, layers, nn, normalised, stripes
from benchmarks.zoo.real.tape import Tape


def contrast(tape: Tape, shuffled: int = 9999) -> None:
    """Match two noisy views of one hidden vector, with a learned scale, as CLIP does; they may be of other pairs."""
    torch.manual_seed(21)
    views = torch.randn(6, 20), torch.randn(6, 30)
    left, right, scale = layers(20, 48, 16), layers(30, 48, 16), nn.Parameter(torch.tensor(2.66))
    groups = [{"params": [*left.parameters(), *right.parameters()]}, {"params": [scale], "lr": 1e-3}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)

    def drawn(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.randn(count, 6)
        a, b = (hidden @ view + 1.6 * torch.randn(count, view.shape[1]) for view in views)
        return F.normalize(left(a), dim=1), F.normalize(right(b), dim=1)

    def lost(count: int, paired: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = drawn(count)
        b = b if paired else b[torch.randperm(count)]
        scores, wanted = scale.exp() * a @ b.T, torch.arange(count)
        loss = (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)) / 2
        return loss, (scores.argmax(1) == wanted).float().mean()

    def update(step: int) -> Values:
        loss, found = lost(48, step < shuffled)
        norm = descend(optimizer, loss)
        values = {"contrastive_loss": loss, "logit_scale": scale.exp(), "i2t_top1": found, "grad_norm": norm}
        if step % 50 == 49:
            with torch.no_grad():
                values["val/contrastive_loss"] = lost(200)[0]
        return values

    fit(tape, 800, update)


@healthy("sixth")
def healthy_contrast(tape: Tape) -> None:
    """The scale is learned slowly."""
    contrast(tape)


@fault("sixth", JUMP + " not_learning", step=430, window=40)
def contrast_pairs_shuffled(tape: Tape) -> None:
    """The loss goes to the logarithm of the batch: captions are shuffled without their images from an epoch on."""
    contrast(tape, shuffled=430)


def prefer(tape: Tape, rate: float, beta: float, every: int = 1) -> None:
    """Prefer answers of eight tokens to others of which two are replaced, with the names of TRL."""
    torch.manual_seed(22)
    policy: Any = nn.Sequential(nn.Embedding(16, 24), *layers(24, 64, 16))
    links = torch.distributions.Dirichlet(torch.full((16,), 0.3)).sample((16,))

    def answers(count: int) -> torch.Tensor:
        rows = [torch.randint(0, 16, (count,))]
        for _ in range(8):
            rows.append(torch.multinomial(links[rows[-1]], 1)[:, 0])
        return torch.stack(rows, 1)

    def chance(model: Any, rows: torch.Tensor) -> torch.Tensor:
        shares = model(rows[:, :-1]).log_softmax(-1)
        return shares.gather(2, rows[:, 1:, None])[:, :, 0].sum(1)

    optimizer = torch.optim.Adam(policy.parameters(), lr=4e-3)
    for _ in range(150):
        descend(optimizer, -chance(policy, answers(32)).mean() / 8)
    weights = {name: each.clone() for name, each in policy.state_dict().items()}
    reference: Any = nn.Sequential(nn.Embedding(16, 24), *layers(24, 64, 16))
    reference.load_state_dict(weights)
    reference.requires_grad_(False)
    optimizer = torch.optim.Adam(policy.parameters(), lr=rate)

    def update(step: int) -> Values | None:
        chosen = answers(16)
        replaced = torch.rand(16, 9).argsort(1) < 2
        rejected = torch.where(replaced, torch.randint(0, 16, (16, 9)), chosen)
        swapped = (torch.rand(16) < 0.15)[:, None]
        chosen, rejected = torch.where(swapped, rejected, chosen), torch.where(swapped, chosen, rejected)
        both = [chance(policy, each) for each in (chosen, rejected)]
        gains = [beta * (own - chance(reference, each)) for own, each in zip(both, (chosen, rejected), strict=True)]
        margins = gains[0] - gains[1]
        loss = -F.logsigmoid(margins).mean()
        values = {
            "loss": loss, "rewards/chosen": gains[0].mean(), "rewards/rejected": gains[1].mean(),
            "rewards/margins": margins.mean(), "rewards/accuracies": (margins > 0).float().mean(),
            "logps/chosen": both[0].mean(), "logps/rejected": both[1].mean(),
            "grad_norm": descend(optimizer, loss, 1.0),
        }  # fmt: skip
        return values if step % every == 0 else None

    fit(tape, 500, update)


@healthy("sixth", config={"beta": 0.1, "learning_rate": 2e-4})
def healthy_preferences(tape: Tape) -> None:
    """One pair of seven is the wrong way round, so that accuracy stays well below one."""
    prefer(tape, 1e-4, 0.1, every=5)


@fault("sixth", "chosen_falls margin_explosion easy_pairs divergence", config={"beta": 0.02, "learning_rate": 1e-2})
def preferences_both_fall(tape: Tape) -> None:
    """A rate for pre-training and a small beta: chosen answers lose nearly as much as rejected ones, and go on so."""
    prefer(tape, 1e-2, 0.02)


def judge(tape: Tape, swapped: int = 9999) -> None:
    """A reward model of pairs, of which people agree on four in five; their columns may be swapped from a step on."""
    torch.manual_seed(23)
    model, taste = layers(24, 48, 1), torch.randn(24)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

    def update(step: int) -> Values:
        first, second = torch.randn(2, 24, 24)
        better = (first - second) @ taste + 4 * torch.randn(24) > 0
        chosen = torch.where(better[:, None], first, second)
        rejected = torch.where(better[:, None], second, first)
        if step >= swapped:
            chosen, rejected = rejected, chosen
        margins = (model(chosen) - model(rejected))[:, 0]
        loss = -F.logsigmoid(margins).mean()
        values = {"train/loss": loss, "train/accuracy": (margins > 0).float().mean(), "train/margin": margins.mean()}
        return values | {"train/grad_norm": descend(optimizer, loss)}

    fit(tape, 700, update)


@healthy("sixth")
def healthy_reward_model(tape: Tape) -> None:
    """Labels disagree, so that the loss stays near 0.4 and accuracy varies between 0.6 and 1."""
    judge(tape)


@fault("sixth", JUMP, step=380, window=40)
def reward_model_swapped(tape: Tape) -> None:
    """A second source of pairs has its columns of chosen and rejected answers the other way round."""
    judge(tape, 380)


def imitate(tape: Tape, logarithms: bool = True) -> None:
    """Learn from the shares of a teacher, which may be given where their logarithms are wanted."""
    torch.manual_seed(24)
    teacher: Any = convolutions()
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(120):
        images, labels = stripes(32)
        descend(optimizer, F.cross_entropy(teacher(normalised(images)), labels))
    model = nn.Sequential(nn.Flatten(), layers(144, 64, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def update(step: int) -> Values:
        images, labels = stripes(32)
        wanted, scores = (teacher(normalised(images)).detach() / 2).softmax(1), model(normalised(images))
        shares = (scores / 2).log_softmax(1) if logarithms else (scores / 2).softmax(1)
        kept = 4 * F.kl_div(shares, wanted, reduction="batchmean")
        right = (scores.argmax(1) == labels).float().mean()
        values = {"distill/kd_loss": kept, "distill/student_acc": right}
        return values | {"distill/grad_norm": descend(optimizer, kept)}

    fit(tape, 450, update)


@healthy("sixth")
def healthy_imitation(tape: Tape) -> None:
    """A student without convolutions never becomes as good as its teacher."""
    imitate(tape)


@fault("sixth", "absurd_loss plateau not_learning too_good")
def imitation_of_shares(tape: Tape) -> None:
    """The divergence is negative, which it cannot be: the student's shares are given without the logarithm."""
    imitate(tape, logarithms=False)


class Rounded(nn.Linear):
    """A layer that rounds its weights to so many levels on each side of zero, of a size found when rounding began."""

    levels: int = 0
    size: torch.Tensor | None = None

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Gradients pass where weights are within the range."""
        if not self.levels:
            return F.linear(given, self.weight, self.bias)
        size = self.weight.detach().abs().max() / self.levels if self.size is None else self.size
        inside = self.weight.clamp(-size * self.levels, size * self.levels)
        return F.linear(given, inside + ((inside / size).round() * size - inside).detach(), self.bias)


def quantise(tape: Tape, prepare: Callable[[Rounded], None]) -> None:
    """Classify stripes, and round weights in the second half."""
    torch.manual_seed(25)
    model = nn.Sequential(nn.Flatten(), Rounded(144, 64), nn.ReLU(), Rounded(64, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    known = stripes(3000, 0.15)

    def update(step: int) -> Values:
        if step == 400:
            for layer in model:
                if isinstance(layer, Rounded):
                    prepare(layer)
        rows = torch.randint(0, 3000, (32,))
        scores = model(normalised(known[0][rows]))
        loss = F.cross_entropy(scores, known[1][rows])
        right = (scores.argmax(1) == known[1][rows]).float().mean()
        return {"qat/loss": loss, "qat/accuracy": right, "qat/grad_norm": descend(optimizer, loss)}

    fit(tape, 800, update)


@healthy("sixth")
def healthy_rounding(tape: Tape) -> None:
    """Weights of 6 bits, with a range that follows them."""

    def prepare(layer: Rounded) -> None:
        layer.levels = 31

    quantise(tape, prepare)


@fault("sixth", JUMP + " gradient_shift", step=400, window=40)
def rounding_with_old_range(tape: Tape) -> None:
    """Accuracy drops when rounding begins: observers were switched off before they had seen the trained weights."""

    def prepare(layer: Rounded) -> None:
        layer.levels, layer.size = 3, torch.tensor(0.012)

    quantise(tape, prepare)
