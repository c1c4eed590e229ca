"""Small learnable tasks that the farm draws from: each is a network, batches, a loss with its parts, and chance."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Tensor, ...]
Values = dict[str, Any]
Weights = dict[str, float]
"""Factors on the parts of a loss, of which a fault changes some."""


@dataclass(slots=True)
class Problem:
    """What is learnt from batches: `loss` has the mean over a batch, and what else may be logged."""

    net: nn.Module
    draw: Callable[[int, bool], Batch]
    loss: Callable[[Batch, Weights], tuple[Tensor, Values]]
    rate: float = 3e-3
    cost: float = 1.0
    """Milliseconds a step takes."""
    guess: float = math.nan
    """The loss of who knows nothing of the inputs; nan: that of the untrained network."""
    few: int = 0
    """How many examples there are; 0 if each batch is new."""
    labelled: bool = True
    """Whether the last part of a batch is what must be told."""
    config: dict[str, Any] = field(default_factory=dict)


Make = Callable[[Random], Problem]
TASKS: dict[str, Make] = {}


def task(make: Make) -> Make:
    """Register a task under the name of its function."""
    TASKS[make.__name__] = make
    return make


class Pool:
    """Rows that are dealt without repetition until all were seen, and others that are held out."""

    def __init__(self, few: int, *parts: Tensor, held: int = 256) -> None:
        self.known, self.others = [each[held:] for each in parts], [each[:held] for each in parts]
        self.few, self.order = few, torch.empty(0, dtype=torch.long)

    def __call__(self, count: int, held_out: bool) -> Batch:
        """Deal so many rows; held out are always the same ones."""
        if held_out:
            return tuple(each[:count] for each in self.others)
        while len(self.order) < count:
            self.order = torch.cat([self.order, torch.randperm(len(self.known[0]))])
        rows, self.order = self.order[:count], self.order[count:]
        return tuple(each[rows] for each in self.known)


def mlp(d: Random, *sizes: int, dropout: float = 0.0) -> nn.Sequential:
    """Layers of these sizes with a drawn activation and perhaps a normalisation."""
    act, norm = d.choice([nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU]), d.choice([None, None, nn.LayerNorm, nn.BatchNorm1d])
    layers: list[nn.Module] = []
    for first, second in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(first, second), *([norm(second)] if norm else []), act()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def right(scores: Tensor, wanted: Tensor) -> Tensor:
    """The share of right answers."""
    return (scores.argmax(-1) == wanted).float().mean()


def told(scores: Tensor, wanted: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Values]:
    """The cross entropy of scores and the share of right answers."""
    scores, wanted = scores.flatten(0, -2), wanted.flatten()
    return F.cross_entropy(scores, wanted, label_smoothing=smoothing), {"accuracy": right(scores, wanted)}


def prior(wanted: Tensor) -> float:
    """The cross entropy of always guessing the shares of the classes."""
    share = torch.bincount(wanted.flatten()).float() / wanted.numel()
    return float(-(share * share.clamp(min=1e-9).log()).sum())


def kinds_of(d: Random, count: int, classes: int) -> Tensor:
    """Labels, of which some are perhaps rare."""
    steep = d.choice([0.0, 0.0, 0.3, 0.8])
    return torch.multinomial(torch.exp(-steep * torch.arange(classes).float()), count, replacement=True)


def _some(d: Random) -> int:
    return d.choice([1500, 3000, 6000, 12000])


@task
def points(d: Random) -> Problem:
    """Classes of points, with noise in inputs and perhaps in labels."""
    classes, wide, few = d.choice([2, 3, 5, 10]), d.choice([8, 20, 50]), _some(d)
    labels = kinds_of(d, few + 256, classes)
    inputs = 1.5 * torch.randn(classes, wide)[labels] + d.choice([1.0, 1.6, 2.2]) * torch.randn(few + 256, wide)
    wrong = torch.rand(len(labels)) < d.choice([0, 0, 0.05, 0.15])
    labels = torch.where(wrong, torch.randint(0, classes, labels.shape), labels)
    net = mlp(d, wide, *[d.choice([16, 32, 64])] * d.choice([1, 2, 3]), classes, dropout=d.choice([0, 0, 0.1, 0.3]))
    smooth = d.choice([0, 0, 0.1])
    return Problem(net, Pool(few, inputs, labels), lambda b, w: told(net(b[0]), b[1], smooth), 2e-3, 0.7,
                   prior(labels), few, config={"num_classes": classes})  # fmt: skip


@task
def curve(d: Random) -> Problem:
    """A number from some others, by a squared, absolute or Huber loss."""
    wide, few = d.choice([2, 6, 16]), _some(d)
    inputs = torch.randn(few + 256, wide)
    wanted = torch.sin(2 * inputs[:, :1]) + inputs[:, 1:2] * inputs[:, -1:] * 0.5
    wanted = (wanted + d.choice([0.02, 0.2, 0.5]) * torch.randn_like(wanted)) * d.choice([1.0, 1.0, 10.0])
    net = mlp(d, wide, *[d.choice([32, 64])] * d.choice([1, 2]), 1)
    far = d.choice([F.mse_loss, F.l1_loss, F.huber_loss])

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        found = net(b[0])
        return far(found, b[1]), {"mae": (found - b[1]).abs().mean(), "r2": 1 - F.mse_loss(found, b[1]) / b[1].var()}

    return Problem(net, Pool(few, inputs, wanted), loss, 4e-3, 0.7, float(far(wanted.mean() + 0 * wanted, wanted)), few)


@task
def spread(d: Random) -> Problem:
    """A number with its own uncertainty, by the likelihood of a Gaussian, which may fall below zero."""
    few = _some(d)
    inputs = torch.rand(few + 256, 4) * 4 - 2
    wide = d.choice([0.05, 0.2]) + 0.2 * inputs[:, 1:2].abs()
    wanted = torch.sin(2 * inputs[:, :1]) + wide * torch.randn(few + 256, 1)
    net = mlp(d, 4, 48, 48, 2)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        mean, log_var = net(b[0]).chunk(2, -1)
        log_var = log_var.clamp(-6, 4)
        value = 0.5 * (log_var + (mean - b[1]) ** 2 * torch.exp(-log_var)).mean()
        return value, {"mse": F.mse_loss(mean, b[1]), "sigma": (0.5 * log_var).exp().mean()}

    return Problem(net, Pool(few, inputs, wanted), loss, 3e-3, 0.8, 0.5 * math.log(float(wanted.var())) + 0.5, few)


def gratings(count: int, side: int, kinds: int, noise: float) -> tuple[Tensor, Tensor]:
    """Pictures of stripes in some directions."""
    labels = torch.randint(0, kinds, (count,))
    angle, phase = labels * math.pi / kinds, torch.rand(count, 1, 1) * 6.28
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    wave = x * torch.cos(angle)[:, None, None] + y * torch.sin(angle)[:, None, None]
    return torch.sin(1.2 * wave + phase)[:, None] + noise * torch.randn(count, 1, side, side), labels


@task
def pictures(d: Random) -> Problem:
    """Directions of stripes by a small convolutional network, perhaps with batch norm."""
    side, kinds, few, wide = d.choice([8, 10]), d.choice([4, 6]), d.choice([1500, 3000]), d.choice([8, 12])
    inputs, labels = gratings(few + 256, side, kinds, d.choice([0.5, 1.0, 1.5]))
    norm = d.choice([nn.Identity, nn.BatchNorm2d])
    net = nn.Sequential(nn.Conv2d(1, wide, 3, padding=1), norm(wide), nn.ReLU(), nn.Conv2d(wide, wide, 3, 2, 1),
                        nn.ReLU(), nn.Flatten(), nn.Dropout(d.choice([0.0, 0.2])),
                        nn.Linear(wide * (side // 2) ** 2, kinds))  # fmt: skip
    return Problem(net, Pool(few, inputs, labels), lambda b, w: told(net(b[0]), b[1]), 3e-3, 2.0,
                   math.log(kinds), few, config={"num_classes": kinds})  # fmt: skip


@task
def fields(d: Random) -> Problem:
    """Which points of a picture belong to a disc: a cross entropy and a Dice loss."""
    y, x = torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="ij")
    near, noise = d.choice([2.0, 3.0]), d.choice([0.5, 0.8])
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
                        nn.Conv2d(8, 1, 1))  # fmt: skip

    def draw(count: int, held_out: bool) -> Batch:
        middle = torch.rand(count, 2, 1, 1) * 8 + 1
        mask = (((y - middle[:, 0]) ** 2 + (x - middle[:, 1]) ** 2) < near**2).float()[:, None]
        return mask + noise * torch.randn_like(mask), mask

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        scores = net(b[0])
        share = torch.sigmoid(scores)
        dice = (2 * (share * b[1]).sum() + 1) / (share.sum() + b[1].sum() + 1)
        bce = F.binary_cross_entropy_with_logits(scores, b[1])
        found = (scores > 0).float()
        iou = (found * b[1]).sum() / ((found + b[1]) > 0).float().sum().clamp(min=1)
        return bce + w.get("dice", 1.0) * (1 - dice), {"bce_loss": bce, "dice": dice, "iou": iou}

    return Problem(net, draw, loss, 4e-3, 2.5)


class Tokens(nn.Module):
    """A language model: a GRU, or a transformer that looks back, or one that looks everywhere."""

    def __init__(self, words: int, how: str, wide: int = 24, length: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.how, self.embed, self.head = how, nn.Embedding(words + 1, wide), nn.Linear(wide, words)
        self.place = nn.Parameter(0.02 * torch.randn(length, wide))
        if how == "gru":
            self.body: nn.Module = nn.GRU(wide, wide, batch_first=True)
        else:
            layer = nn.TransformerEncoderLayer(wide, 2, 2 * wide, dropout, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores of the token at each place."""
        hidden = self.embed(tokens)
        if self.how == "gru":
            return self.head(self.body(hidden)[0])
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1]) if self.how == "back" else None
        return self.head(self.body(hidden + self.place[: tokens.shape[1]], mask=mask, is_causal=mask is not None))


def chains(d: Random, words: int, count: int, length: int) -> Tensor:
    """Texts of a language in which each word tells which two to four may follow."""
    after = torch.stack([torch.randperm(words)[:4] for _ in range(words)])
    chance = torch.tensor([0.6, 0.25, 0.1, 0.05]) if d.random() < 0.6 else torch.tensor([0.4, 0.3, 0.2, 0.1])
    text = torch.randint(0, words, (count, length))
    pick = torch.multinomial(chance, count * length, replacement=True).view(count, length)
    for at in range(1, length):
        text[:, at] = after[text[:, at - 1], pick[:, at]]
    return text


@task
def language(d: Random) -> Problem:
    """The next word of a made-up language."""
    words, few, length = d.choice([12, 24, 50]), d.choice([2000, 6000]), d.choice([12, 16])
    text = chains(d, words, few + 128, length + 1)
    net = Tokens(words, d.choice(["gru", "back"]), d.choice([16, 32]), length, d.choice([0.0, 0.1]))

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        value, found = told(net(b[0]), b[1])
        return value, found | {"perplexity": value.detach().exp(), "tokens": b[0].numel()}

    draw = Pool(few, text[:, :-1], text[:, 1:], held=128)
    return Problem(net, draw, loss, 5e-3, 3.5, prior(text), few, config={"vocab_size": words})


@task
def masked(d: Random) -> Problem:
    """Words that were covered, from those around them."""
    words, few = d.choice([12, 20]), 4000
    text = chains(d, words, few + 128, 12)
    net = Tokens(words, "both", 24, 12)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        covered = torch.rand(b[0].shape) < 0.2
        covered[:, 5] = True
        scores = net(b[0].masked_fill(covered, words))
        return told(scores[covered], b[1][covered])

    return Problem(net, Pool(few, text, text, held=128), loss, 5e-3, 4.0, prior(text), few, labelled=False)


@task
def series(d: Random) -> Problem:
    """Which word is the most frequent one, or what comes next in a wave, by a GRU."""
    few, body, head = 3000, nn.GRU(1, 20, batch_first=True), nn.Linear(20, 1)
    net = nn.ModuleList([body, head])
    begin, speed = torch.rand(few + 256, 1) * 6, 0.2 + 0.5 * torch.rand(few + 256, 1)
    wave = torch.sin(begin + speed * torch.arange(17)) + d.choice([0.05, 0.2]) * torch.randn(few + 256, 17)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        found = head(body(b[0])[0][:, -1])
        return F.mse_loss(found, b[1]), {"mae": (found - b[1]).abs().mean()}

    return Problem(net, Pool(few, wave[:, :16, None], wave[:, 16:]), loss, 4e-3, 2.0, float(wave[:, 16].var()), few)


@task
def reversal(d: Random) -> Problem:
    """Sequence to sequence: a row of words the other way round, with the right words before each given."""
    words, length = d.choice([6, 10]), d.choice([4, 5])
    embed, into = nn.Embedding(words + 1, 24), nn.GRU(24, 48, batch_first=True)
    out, head = nn.GRU(24, 48, batch_first=True), nn.Linear(48, words)
    net = nn.ModuleList([embed, into, out, head])

    def draw(count: int, held_out: bool) -> Batch:
        text = torch.randint(0, words, (count, length))
        return text, text.flip(1)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        given = torch.cat([torch.full_like(b[1][:, :1], words), b[1][:, :-1]], 1)
        return told(head(out(embed(given), into(embed(b[0]))[1])[0]), b[1])

    return Problem(net, draw, loss, 6e-3, 3.0, math.log(words))


@task
def squeeze(d: Random) -> Problem:
    """An autoencoder of data that lies in few dimensions."""
    wide, few = d.choice([16, 32]), _some(d)
    inputs = torch.tanh(torch.randn(few + 256, 4) @ torch.randn(4, wide)) + 0.1 * torch.randn(few + 256, wide)
    net = nn.Sequential(mlp(d, wide, 32, 6), mlp(d, 6, 32, wide))
    noisy = d.choice([0.0, 0.3])

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        given = b[0] + (noisy * torch.randn_like(b[0]) if net.training else 0)
        return F.mse_loss(net(given), b[0]), {}

    return Problem(net, Pool(few, inputs), loss, 3e-3, 1.0, float(inputs.var(0).mean()), few, labelled=False)


@task
def vae(d: Random) -> Problem:
    """A variational autoencoder, with its reconstruction and the divergence to its prior."""
    few, beta = _some(d), d.choice([0.3, 1.0])
    inputs = torch.tanh(torch.randn(few + 256, 3) @ torch.randn(3, 16)) + 0.1 * torch.randn(few + 256, 16)
    first, second = mlp(d, 16, 32, 8), mlp(d, 4, 32, 16)
    net = nn.ModuleList([first, second])

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        mean, log_var = first(b[0]).clamp(-8, 8).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        near = ((second(code) - b[0]) ** 2).sum(-1).mean() * 4
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(-1).mean()
        return near + beta * w.get("kl", 1.0) * kl, {"recon_loss": near, "kl_loss": kl}

    return Problem(net, Pool(few, inputs), loss, 2e-3, 1.2, few=few, labelled=False)


@task
def diffusion(d: Random) -> Problem:
    """The noise in noised points."""
    few = _some(d)
    turn = torch.rand(few + 256) * 6.28
    inputs = torch.stack([turn.cos(), turn.sin()], 1) * (1 + 0.05 * torch.randn(few + 256, 1))
    net = mlp(d, 4, 64, 64, 2)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        at, noise = torch.rand(len(b[0]), 1), torch.randn_like(b[0])
        keep = torch.cos(at * 1.55)
        given = keep * b[0] + (1 - keep**2).sqrt() * noise
        return F.mse_loss(net(torch.cat([given, at, at.cos()], 1)), noise), {}

    return Problem(net, Pool(few, inputs), loss, 3e-3, 0.9, 1.0, few, labelled=False)


@task
def views(d: Random) -> Problem:
    """Two noised views of the same thing are to be told from those of fifteen others (InfoNCE)."""
    few, heat = _some(d), d.choice([0.1, 0.2, 0.5])
    inputs = torch.tanh(torch.randn(few + 256, 8) @ torch.randn(8, 32))
    net = mlp(d, 32, 48, 16)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        one, two = (F.normalize(net(b[0] + 0.7 * torch.randn_like(b[0])), dim=-1) for _ in range(2))
        first, second = (each.view(-1, 16, 16) for each in (one, two))
        scores = first @ second.mT / heat * w.get("heat", 1.0)
        value, found = told(scores, torch.arange(16).expand(len(first), 16))
        return value, found | {"embedding_std": one.std(0).mean(), "alignment": (one - two).pow(2).sum(-1).mean()}

    return Problem(net, Pool(few, inputs), loss, 3e-3, 1.2, few=few, labelled=False)


@task
def triplets(d: Random) -> Problem:
    """Things of one kind are to be nearer than those of others, by a margin."""
    kinds = 5
    inputs = 1.2 * torch.randn(kinds, 16)
    net = mlp(d, 16, 32, 8)

    def draw(count: int, held_out: bool) -> Batch:
        one = torch.randint(0, kinds, (count,))
        other = (one + torch.randint(1, kinds, (count,))) % kinds
        return tuple(inputs[each] + 1.2 * torch.randn(count, 16) for each in (one, one, other))

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        one, two, three = (net(each) for each in b)
        near, far = (one - two).norm(dim=-1), (one - three).norm(dim=-1)
        return F.relu(near - far + 1).mean(), {"pos_dist": near.mean(), "neg_dist": far.mean()}

    return Problem(net, draw, loss, 2e-3, 1.2, 1.0, labelled=False)


@task
def ratings(d: Random) -> Problem:
    """Ratings by the factors of who rates and of what is rated."""
    people, things, few = 60, 40, 6000
    taste, kind = torch.randn(people, 3), torch.randn(things, 3)
    who, what = torch.randint(0, people, (few + 256,)), torch.randint(0, things, (few + 256,))
    stars = (taste[who] * kind[what]).sum(-1) + 0.3 * torch.randn(few + 256)
    net = nn.ModuleList([nn.Embedding(people, 4), nn.Embedding(things, 4)])
    for each in net:
        nn.init.normal_(each.weight, std=0.3)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        value = F.mse_loss((net[0](b[0]) * net[1](b[1])).sum(-1), b[2])
        return value, {"rmse": value.detach().sqrt()}

    return Problem(net, Pool(few, who, what, stars), loss, 1.5e-2, 0.6, float(stars.var()), few)


@task
def graph(d: Random) -> Problem:
    """To which of three groups a node belongs, by itself and its neighbours."""
    groups = torch.randint(0, 3, (500,))
    linked = (torch.rand(500, 500) < torch.where(groups[:, None] == groups, 0.05, 0.01)).float()
    linked = torch.maximum(linked, linked.T) + torch.eye(500)
    mix = linked / linked.sum(1, keepdim=True)
    inputs = torch.randn(3, 12)[groups] + 2 * torch.randn(500, 12)
    net = nn.ModuleList([nn.Linear(12, 24), nn.Linear(24, 3)])

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        scores = net[1](mix @ torch.relu(net[0](mix @ inputs)))
        return told(scores[b[0]], b[1])

    return Problem(net, Pool(350, torch.arange(500), groups, held=150), loss, 4e-3, 1.5, math.log(3), 350)


@task
def experts(d: Random) -> Problem:
    """A regression by four experts of which a router takes the best two, with a loss for their balance."""
    few, count = _some(d), 4
    inputs = torch.randn(few + 256, 8)
    wanted = torch.einsum(
        "ni,nij->nj", inputs, torch.randn(4, 8, 2)[(inputs[:, 0] > 0).long() * 2 + (inputs[:, 1] > 0)]
    )
    router, body = nn.Linear(8, count), nn.ModuleList([mlp(d, 8, 24, 2) for _ in range(count)])
    net = nn.ModuleList([router, body])

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        share = torch.softmax(router(b[0]) * w.get("router", 1.0), -1)
        best, which = share.topk(2, -1)
        taken = torch.zeros_like(share).scatter(1, which, best / best.sum(-1, keepdim=True))
        found = (torch.stack([each(b[0]) for each in body], 1) * taken[..., None]).sum(1)
        load = (taken > 0).float().mean(0) / 2
        balance = count * (load * share.mean(0)).sum()
        near = F.mse_loss(found, b[1])
        values = {"load_balancing_loss": balance, "max_load": load.max(), "mse": near}
        return near + 0.01 * w.get("balance", 1.0) * balance, values

    return Problem(net, Pool(few, inputs, wanted), loss, 4e-3, 2.5, float(wanted.var()), few)


@task
def table(d: Random) -> Problem:
    """Who clicks, from numbers and categories, most do not."""
    few, sizes = _some(d), (8, 20, 5)
    sorts = torch.stack([torch.randint(0, each, (few + 512,)) for each in sizes], 1)
    numbers = torch.randn(few + 512, 6)
    score = sum(torch.randn(size)[sorts[:, at]] for at, size in enumerate(sizes)) + numbers @ torch.randn(6)
    clicks = (torch.rand(few + 512) < torch.sigmoid(1.5 * score - d.choice([0, 2.0]))).float()
    tables = nn.ModuleList([nn.Embedding(each, 4) for each in sizes])
    head = mlp(d, 18, 32, 1, dropout=d.choice([0.0, 0.1]))
    net = nn.ModuleList([tables, head])

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        hidden = [each(b[1][:, at]) for at, each in enumerate(tables)]
        found = head(torch.cat([b[0], *hidden], 1))[:, 0]
        yes, no = found[b[2] > 0.5], found[b[2] <= 0.5]
        auc = (yes[:, None] > no).float().mean() if len(yes) and len(no) else torch.tensor(0.5)
        values = {"auc": auc, "accuracy": ((found > 0) == (b[2] > 0.5)).float().mean()}
        return F.binary_cross_entropy_with_logits(found, b[2]), values

    draw = Pool(few, numbers, sorts, clicks, held=512)
    return Problem(net, draw, loss, 3e-3, 1.0, prior(clicks.long()), few)


@task
def student(d: Random) -> Problem:
    """A student learns from what a teacher says, and from the labels."""
    few, classes = _some(d), 5
    labels = torch.randint(0, classes, (few + 256,))
    inputs = torch.randn(classes, 12)[labels] * 1.2 + torch.randn(few + 256, 12)
    teacher, net = mlp(d, 12, 64, classes), mlp(d, 12, 16, classes)
    optimizer = torch.optim.Adam(teacher.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        rows = torch.randint(256, few + 256, (128,))
        F.cross_entropy(teacher(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    teacher.eval().requires_grad_(False)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        found, said = net(b[0]), teacher(b[0]) / 2 * w.get("teacher", 1.0)
        near = F.kl_div((found / 2).log_softmax(-1), said.softmax(-1), reduction="batchmean") * 4
        hard, values = told(found, b[1])
        return 0.7 * near + 0.3 * hard, values | {"kd_loss": near, "ce_loss": hard}

    return Problem(net, Pool(few, inputs, labels), loss, 3e-3, 1.3, few=few, config={"num_classes": classes})


@task
def both(d: Random) -> Problem:
    """Two tasks share a trunk: a class and a number."""
    few = _some(d)
    inputs = torch.randn(few + 256, 10)
    number = torch.sin(inputs[:, :1] * 2) + 0.2 * torch.randn(few + 256, 1)
    kind = (inputs[:, 1] + inputs[:, 2] * inputs[:, 3] > 0).long()
    trunk, one, two = mlp(d, 10, 48, 32), nn.Linear(32, 2), nn.Linear(32, 1)
    net = nn.ModuleList([trunk, one, two])

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        hidden = torch.relu(trunk(b[0]))
        first, values = told(one(hidden), b[2])
        second = F.mse_loss(two(hidden), b[1])
        return first + w.get("second", 1.0) * second, values | {"cls_loss": first, "reg_loss": second}

    return Problem(net, Pool(few, inputs, number, kind), loss, 3e-3, 1.2, few=few)


@task
def flow(d: Random) -> Problem:
    """The density of points by a flow of coupled layers; it may fall below zero."""
    few = _some(d)
    inputs = torch.randn(few + 256, 2)
    inputs[:, 1] = 0.5 * inputs[:, 1] * d.choice([0.2, 1.0]) + inputs[:, 0] ** 2 * 0.5
    net = nn.ModuleList([mlp(d, 1, 24, 2) for _ in range(4)])

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        x, total = b[0], torch.zeros(len(b[0]))
        for layer in net:
            scale, shift = layer(x[:, :1]).chunk(2, -1)
            scale = torch.tanh(scale)
            x, total = torch.cat([x[:, 1:] * scale.exp() + shift, x[:, :1]], 1), total + scale[:, 0]
        value = (0.5 * (x**2).sum(-1) + math.log(2 * math.pi) - total).mean()
        return value, {"bits_per_dim": value / 2 / math.log(2)}

    return Problem(net, Pool(few, inputs), loss, 3e-3, 2.0, few=few, labelled=False)


@task
def pairs(d: Random) -> Problem:
    """A reward model: which of two texts was preferred."""
    few, net, truth = _some(d), mlp(d, 16, 32, 1), torch.randn(16, 1)
    one, two = torch.randn(few + 256, 16), torch.randn(few + 256, 16)
    better = torch.rand(few + 256, 1) < torch.sigmoid(1.5 * (one - two) @ truth)
    good, bad = torch.where(better, one, two), torch.where(better, two, one)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        margin = net(b[0]) - net(b[1])
        return -F.logsigmoid(margin).mean(), {"accuracy": (margin > 0).float().mean(), "margin": margin.mean()}

    return Problem(net, Pool(few, good, bad), loss, 2e-3, 1.0, math.log(2), few, labelled=False)


@task
def dpo(d: Random) -> Problem:
    """A language model prefers what it is told to (DPO), against the model it began as."""
    words, few, beta = 12, 1500, d.choice([0.1, 0.3, 0.5])
    text = chains(d, words, 800, 9)
    net, begun = Tokens(words, "gru", 20, 8), Tokens(words, "gru", 20, 8)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(80):
        rows = torch.randint(0, 800, (64,))
        optimizer.zero_grad()
        told(net(text[rows, :-1]), text[rows, 1:])[0].backward()
        optimizer.step()
    begun.load_state_dict(net.state_dict())
    begun.requires_grad_(False)
    sides = [chains(d, words, few + 256, 9), chains(d, words, few + 256, 9)]
    first = sides[0].float().mean(1) + 0.8 * torch.randn(few + 256) > sides[1].float().mean(1)
    chosen, rejected = (torch.where(first[:, None] ^ other, sides[0], sides[1]) for other in (False, True))

    def sure(model: nn.Module, text: Tensor) -> Tensor:
        return model(text[:, :-1]).log_softmax(-1).gather(-1, text[:, 1:, None])[..., 0].sum(-1)

    def loss(b: Batch, w: Weights) -> tuple[Tensor, Values]:
        logps = [sure(net, each) for each in b]
        good, bad = (w.get("beta", 1.0) * beta * (now - sure(begun, each)) for now, each in zip(logps, b, strict=True))
        margin = good - bad
        values = {"rewards/chosen": good.mean(), "rewards/rejected": bad.mean(), "rewards/margins": margin.mean(),
                  "rewards/accuracies": (margin > 0).float().mean(), "logps/chosen": logps[0].mean()}  # fmt: skip
        return -F.logsigmoid(margin).mean(), values

    return Problem(net, Pool(few, chosen, rejected), loss, 1e-3, 7.0, math.log(2), few, labelled=False)
