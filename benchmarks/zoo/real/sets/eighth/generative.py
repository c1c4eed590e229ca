"""Pairs of networks, codes, densities, experts, graphs and tastes, in the names of tutorials and libraries."""

import math
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.eighth.tasks import cosine, gratings
from benchmarks.zoo.real.sets.seventh.tasks import F, Values, dense, drive, learn, nn, set_rate, share_right
from benchmarks.zoo.real.tape import Tape


def moons(count: int) -> torch.Tensor:
    """Points on two half circles that reach into each other."""
    angle, side = math.pi * torch.rand(count), torch.randint(0, 2, (count,)) * 2 - 1
    points = torch.stack([angle.cos() * side + 0.5 * side, angle.sin() * side - 0.25 * side], 1)
    return 0.5 * points + 0.04 * torch.randn(count, 2)


def forge(tape: Tape, rates: tuple[float, float], steps: int = 500) -> None:
    """A pair of networks in the names of PyTorch's DCGAN tutorial; the rates are those of forger and judge."""
    torch.manual_seed(61)
    forger, judge = dense((4, 32, 32, 2)), dense((2, 32, 32, 1), lambda: nn.LeakyReLU(0.2))
    optimizers = [
        torch.optim.Adam(net.parameters(), lr=rate, betas=(0.5, 0.999))
        for net, rate in zip((forger, judge), rates, strict=True)
    ]

    def act(step: int) -> Values:
        made = forger(torch.randn(48, 4))
        real, false = judge(moons(48)), judge(made.detach())
        loss = F.softplus(-real).mean() + F.softplus(false).mean()
        learn(optimizers[1], loss)
        again = judge(made)
        forged = F.softplus(-again).mean()
        learn(optimizers[0], forged)
        if step % 2:
            return {}
        chances = [each.detach().sigmoid().mean() for each in (real, false, again)]
        return {
            "Loss_D": loss, "Loss_G": forged, "D(x)": chances[0], "D(G(z))/1": chances[1], "D(G(z))/2": chances[2]
        }  # fmt: skip

    drive(tape, steps, act)


@healthy("eighth")
def healthy_dcgan_in_balance(tape: Tape) -> None:
    """Both losses swing about each other and lead nowhere, as they do while the forger learns."""
    forge(tape, (0.001, 0.001))


@fault("eighth", "gan_imbalance vanishing_gradients not_learning divergence")
def dcgan_judge_too_fast(tape: Tape) -> None:
    """The rates of forger and judge were given the wrong way round: the judge is soon sure of everything."""
    forge(tape, (0.00003, 0.01))


def code(tape: Tape, weight: Any, steps: int = 450) -> None:
    """Code gratings by a variational network; `weight` is that of the divergence."""
    torch.manual_seed(62)
    inner, outer = dense((100, 48, 12)), dense((6, 48, 100))
    optimizer = torch.optim.Adam([*inner.parameters(), *outer.parameters()], lr=0.002)
    known = gratings(2000, 0.2)[0].flatten(1)

    def act(step: int) -> Values:
        rows = known[torch.randint(0, 2000, (32,))]
        middle, spread = inner(rows).chunk(2, 1)
        found = outer(middle + (0.5 * spread).exp() * torch.randn_like(middle))
        missed = ((found - rows) ** 2).sum(1).mean()
        away = -0.5 * (1 + spread - middle**2 - spread.exp()).sum(1).mean()
        loss = missed + weight(step) * away
        learn(optimizer, loss, 50.0)
        if step % 2:
            return {}
        return {"train/loss": loss, "train/recon_loss": missed, "train/kld": away, "train/beta": weight(step)}

    drive(tape, steps, act)


@healthy("eighth")
def healthy_code_weight_phased_in(tape: Tape) -> None:
    """The divergence counts for nothing at first and in full from step 300; the sum rises with its weight."""
    code(tape, lambda step: min(1.0, max(0.0, (step - 100) / 200)))


@fault("eighth", "posterior_collapse level_shift divergence", step=220, window=40)
def code_weight_of_another_sum(tape: Tape) -> None:
    """The reconstruction became a sum elsewhere, and the weight was raised to match: no code is worth its price."""
    code(tape, lambda step: 0.5 if step < 220 else 100.0)


def flow(tape: Tape, steps: int = 500) -> None:
    """The density of the moons by six coupled layers; the negative logarithm soon lies below zero."""
    torch.manual_seed(63)
    parts = nn.ModuleList(dense((1, 24, 2), nn.Tanh) for _ in range(6))
    optimizer = torch.optim.Adam(parts.parameters())
    rate = cosine(steps, 0.008, warm=10)

    def act(step: int) -> Values:
        set_rate(optimizer, rate(step))
        first, second = moons(64).chunk(2, 1)
        change = torch.zeros(64)
        for part in parts:
            scale, shift = part(first).chunk(2, 1)
            scale = 1.5 * scale.tanh()
            first, second, change = second * scale.exp() + shift, first, change + scale[:, 0]
        nll = (0.5 * (first**2 + second**2)[:, 0] + math.log(2 * math.pi) - change).mean()
        return {"nll": nll, "bits_per_dim": nll / (2 * math.log(2)), "grad_norm": learn(optimizer, nll, 5.0)}

    drive(tape, steps, act)


@healthy("eighth")
def healthy_flow_below_zero(tape: Tape) -> None:
    """The logarithm of a density may be above zero, and so the loss goes below it and on."""
    flow(tape)


def denoise(tape: Tape, kept_from: int, steps: int = 450) -> None:
    """Find the noise in points, as a script of diffusers logs it; from a step on old weights are put back each time."""
    torch.manual_seed(64)
    model = dense((4, 64, 64, 2), nn.SiLU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0004)
    kept: list[torch.Tensor] = []

    def act(step: int) -> Values:
        points, noise, level = moons(64), torch.randn(64, 2), torch.rand(64, 1)
        given = (level * math.pi / 2).cos() * points + (level * math.pi / 2).sin() * noise
        loss = ((model(torch.cat([given, level, level**2], 1)) - noise) ** 2).mean()
        learn(optimizer, loss, 1.0)
        with torch.no_grad():
            if step == kept_from:
                kept.extend(weight.clone() for weight in model.parameters())
            for weight, old in zip(model.parameters(), kept, strict=False):
                weight.copy_(old)
            norm = sum(float((weight**2).sum()) for weight in model.parameters()) ** 0.5
        return {"train_loss": loss, "step_loss": loss, "lr": 0.0004, "param_norm": norm} if step % 2 == 0 else {}

    drive(tape, steps, act)


@fault("eighth", "weights_frozen constant plateau", step=120, window=40)
def diffusers_average_put_back(tape: Tape) -> None:
    """The averaged weights are put into the model for samples, and since step 120 again after every update."""
    denoise(tape, kept_from=120)


def recommend(tape: Tape, until: int, steps: int = 500) -> None:
    """Learn tastes by nearness and evenness, as in DirectAU; from a step on evenness counts for nothing."""
    torch.manual_seed(65)
    likes = 2.0 * torch.randn(120, 5) @ torch.randn(5, 80)
    chances = likes.softmax(1)
    best = likes.topk(10, 1).indices
    users, items = nn.Embedding(120, 16), nn.Embedding(80, 16)
    optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()], lr=0.01)
    worth = 1 / torch.log2(torch.arange(10.0) + 2)

    def even(rows: torch.Tensor) -> torch.Tensor:
        return torch.pdist(rows).square().mul(-2).exp().mean().log()

    def act(step: int) -> Values:
        who = torch.randint(0, 120, (64,))
        what = torch.multinomial(chances[who], 1)[:, 0]
        left, right = F.normalize(users(who), dim=1), F.normalize(items(what), dim=1)
        near, spread = ((left - right) ** 2).sum(1).mean(), (even(left) + even(right)) / 2
        loss = near + (1.0 if step < until else 0.0) * spread
        learn(optimizer, loss)
        values: Values = {}
        if step % 2 == 0:
            deviation = right.std(0).mean()
            values = {"train/loss": loss, "train/align": near, "train/uniform": spread, "train/emb_std": deviation}
        if step % 25 == 24:
            with torch.no_grad():
                top = (F.normalize(users.weight, dim=1) @ F.normalize(items.weight, dim=1).T).topk(10, 1).indices
            hit = (top[:, :, None] == best[:, None]).any(2).float()
            values |= {"val/ndcg@10": (hit @ worth / worth.sum()).mean(), "val/recall@10": hit.mean()}
        return values

    drive(tape, steps, act)


@fault("eighth", "posterior_collapse level_shift accuracy_drop divergence spike", step=250, window=40)
def recommender_evenness_lost(tape: Tape) -> None:
    """Since a change of the configuration the weight of evenness is zero: all users and items become one."""
    recommend(tape, until=250)


def cite(tape: Tape, shift: float, steps: int = 300) -> None:
    """Tell the fields of papers from what they cite, as an example of PyG logs it, once a pass over the graph."""
    torch.manual_seed(66)
    fields = torch.randint(0, 5, (200,))
    cited = (torch.rand(200, 200) < 0.01 + 0.08 * (fields[:, None] == fields)).float()
    cited = ((cited + cited.T) > 0).float() + torch.eye(200)
    mixed = cited / cited.sum(1, keepdim=True)
    words = 0.5 * F.one_hot(fields, 20).float() + torch.randn(200, 20)
    first, second = nn.Linear(20, 32), nn.Linear(32, 5)
    nn.init.constant_(first.bias, shift)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.005)
    known = torch.arange(200) < 80

    def act(step: int) -> Values:
        hidden = (mixed @ first(words)).relu()
        scores = mixed @ second(F.dropout(hidden, 0.3))
        loss = F.cross_entropy(scores[known], fields[known])
        learn(optimizer, loss)
        right = [share_right(scores[part], fields[part]) for part in (known, ~known)]
        dead = (hidden.amax(0) == 0).float().mean()
        return {"Loss": loss, "Train": right[0], "Test": right[1], "dead_units/conv1": dead}

    drive(tape, steps, act)


@fault("eighth", "dead_units not_learning plateau constant vanishing_gradients")
def pyg_bias_of_minus_six(tape: Tape) -> None:
    """The constant that was meant for the gates of another layer became the bias of the first: no unit ever fires."""
    cite(tape, -6.0)


def parity(tape: Tape, steps: int = 700) -> None:
    """Whether two of sixteen signs are alike: chance for long, and then all at once."""
    torch.manual_seed(67)
    model = dense((16, 96, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15)

    def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        signs = torch.randint(0, 2, (count, 16)) * 2.0 - 1
        return signs, signs[:, 1] * signs[:, 6]

    def act(step: int) -> Values:
        given, wanted = rows(64)
        found = model(given)[:, 0]
        loss = F.softplus(-wanted * found).mean()
        learn(optimizer, loss)
        return {"train/loss": loss, "train/acc": (found * wanted > 0).float().mean()} if step % 2 == 0 else {}

    drive(tape, steps, act)


@healthy("eighth")
def healthy_parity_after_long_chance(tape: Tape) -> None:
    """For hundreds of steps it guesses, as the signal in the gradients is weak; then it knows."""
    parity(tape)
