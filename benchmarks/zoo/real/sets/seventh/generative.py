"""The seventh set's generators and representations: a ring that is imitated, factors that are coded, two views."""

import math
from collections.abc import Callable

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.seventh.tasks import F, Values, dense, drive, learn, nn, set_rate
from benchmarks.zoo.real.tape import Tape


def ring(count: int) -> torch.Tensor:
    """Points near eight places on a circle."""
    angles = torch.randint(0, 8, (count,)) * math.pi / 4
    return torch.stack([angles.cos(), angles.sin()], 1) + 0.08 * torch.randn(count, 2)


def imitate(tape: Tape, steps: int = 500, rate: Callable[[int], float] = lambda step: 1e-3, stands: int = 9999) -> None:
    """Two networks against each other, with noise on what the discriminator sees."""
    torch.manual_seed(51)
    maker, judge = dense((4, 48, 48, 2)), dense((2, 48, 48, 1), lambda: nn.LeakyReLU(0.2))
    first = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.9))
    second = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.9))

    def act(step: int) -> Values:
        set_rate(second, rate(step))
        set_rate(first, 1e-3 if step < stands else 1e-6)
        real, made = ring(64), maker(torch.randn(64, 4))
        real, seen = real + 0.2 * torch.randn(64, 2), made + 0.2 * torch.randn(64, 2)
        told = F.softplus(-judge(real)).mean() + F.softplus(judge(seen.detach())).mean()
        learn(second, told)
        fooled = F.softplus(-judge(seen)).mean()
        learn(first, fooled)
        return {"d_loss": told, "g_loss": fooled, "D(x)": judge(real).sigmoid().mean()}

    drive(tape, steps, act)


@healthy("seventh")
def healthy_ring(tape: Tape) -> None:
    """Both losses swing about those of two equals."""
    imitate(tape)


@fault("seventh", "gan_imbalance divergence level_shift", step=260, window=60)
def ring_generator_stands(tape: Tape) -> None:
    """The scheduler takes the rate of the generator to nothing and that of the discriminator up, which wins."""
    imitate(tape, stands=260, rate=lambda step: 1e-3 if step < 260 else 5e-3)


def factors(count: int, mixing: torch.Tensor) -> torch.Tensor:
    """Sixteen values that depend on three hidden ones."""
    return (torch.randn(count, 3) @ mixing).tanh() * 2 + 0.15 * torch.randn(count, 16)


def encode(tape: Tape, weight: Callable[[int], float], steps: int = 450) -> None:
    """Code factors by a variational autoencoder, with a weight of the divergence that changes."""
    torch.manual_seed(52)
    mixing = torch.randn(3, 16)
    inward, outward = dense((16, 48, 8)), dense((4, 48, 16))
    optimizer = torch.optim.Adam([*inward.parameters(), *outward.parameters()], lr=2e-3)

    def act(step: int) -> Values | None:
        given = factors(32, mixing)
        mean, spread = inward(given).chunk(2, 1)
        found = outward(mean + (0.5 * spread).exp() * torch.randn_like(mean))
        off = 2 * ((found - given) ** 2).sum(1).mean()
        away = 0.5 * (mean**2 + spread.exp() - 1 - spread).sum(1).mean()
        learn(optimizer, off + weight(step) * away)
        values = {"recon_loss": off, "kl_loss": away, "beta": weight(step)}
        return values if step % 2 == 0 else None

    drive(tape, steps, act)


@healthy("seventh")
def healthy_coding(tape: Tape) -> None:
    """The weight of the divergence rises from 0 to 1 in 250 steps; the divergence falls meanwhile."""
    encode(tape, lambda step: min(1.0, step / 250), steps=500)


def views(tape: Tape, stopped: Callable[[int], bool] = lambda step: True, steps: int = 400) -> None:
    """Two noisy views of a point are brought together as in SimSiam; the deviation of the codes is logged."""
    torch.manual_seed(53)
    centres = 1.5 * torch.randn(12, 16)
    body = nn.Sequential(nn.Linear(16, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 24))
    guess = nn.Sequential(nn.Linear(24, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 24))
    optimizer = torch.optim.SGD([*body.parameters(), *guess.parameters()], lr=0.05, momentum=0.9, weight_decay=1e-4)

    def act(step: int) -> Values:
        given = centres[torch.randint(0, 12, (48,))] + 0.4 * torch.randn(48, 16)
        codes = [body(given + 0.9 * torch.randn_like(given)) for _ in range(2)]
        held = [code.detach() for code in codes] if stopped(step) else codes
        loss = sum(-F.cosine_similarity(guess(a), b).mean() / 2 for a, b in zip(codes, reversed(held), strict=True))
        norm = learn(optimizer, torch.as_tensor(loss))
        spread = F.normalize(codes[0], dim=1).std(0).mean()
        return {"train_loss_ssl": loss, "train_embedding_std": spread, "train_grad_norm": norm}

    drive(tape, steps, act)


@healthy("seventh")
def healthy_views(tape: Tape) -> None:
    """The loss is negative and nears its bound, and codes keep their spread."""
    views(tape)


@fault("seventh", "too_good level_shift gradient_shift vanishing_gradients", step=200, window=80)
def views_gradient_not_stopped(tape: Tape) -> None:
    """A merge loses `detach()` on the side of the target: codes become alike, and the loss is nearly perfect."""
    views(tape, stopped=lambda step: step < 200)
