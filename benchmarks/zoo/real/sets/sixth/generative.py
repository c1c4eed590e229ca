"""Models of the sixth set that make samples: an autoencoder of stripes, diffusion and adversaries on a ring."""

import math
from collections.abc import Callable
from copy import deepcopy

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.sixth.pictures import JUMP
from benchmarks.zoo.real.sets.sixth.tasks import F, Values, descend, fit, layers, nn, normalised, stripes
from benchmarks.zoo.real.tape import Tape


def encode(tape: Tape, weight: Callable[[int], float]) -> None:
    """A variational autoencoder of six hidden values, with a weight of the divergence by step."""
    torch.manual_seed(31)
    reader, writer = layers(144, 64, 12), layers(6, 64, 144)
    optimizer = torch.optim.Adam([*reader.parameters(), *writer.parameters()], lr=2e-3)

    def update(step: int) -> Values:
        images = normalised(stripes(48, 0.1)[0]).flatten(1)
        mean, spread = reader(images).chunk(2, 1)
        made = writer(mean + (spread / 2).exp() * torch.randn_like(mean))
        missed = (made - images).pow(2).sum(1).mean()
        apart = 0.5 * (mean.pow(2) + spread.exp() - 1 - spread).sum(1).mean()
        loss = missed + weight(step) * apart
        values = {"train/reconstruction_loss": missed, "train/kl_loss": apart, "train/loss": loss}
        return values | {"train/beta": weight(step), "train/grad_norm": descend(optimizer, loss)}

    fit(tape, 600, update)


@healthy("sixth")
def healthy_autoencoder(tape: Tape) -> None:
    """The weight of the divergence rises to one within 300 steps, so that the whole loss rises for a while."""
    encode(tape, lambda step: min(1.0, step / 300))


@fault("sixth", "posterior_collapse plateau not_learning constant")
def autoencoder_sum_and_mean(tape: Tape) -> None:
    """Divergence goes to zero and all samples look alike: it is summed, and the errors of points are averaged."""
    encode(tape, lambda step: 144.0)


@fault("sixth", "posterior_collapse level_shift spike divergence", step=300, window=60)
def autoencoder_weight_without_end(tape: Tape) -> None:
    """Annealing counts steps in the second phase where the first counted epochs, and the weight goes to hundreds."""
    encode(tape, lambda step: min(1.0, step / 100) if step < 300 else 1.0 * (step - 250))


def ring(count: int) -> torch.Tensor:
    """Points of eight clusters on a ring."""
    angles = torch.randint(0, 8, (count,)) * math.pi / 4
    return torch.stack([angles.cos(), angles.sin()], 1) * 1.4 + 0.12 * torch.randn(count, 2)


def denoise(tape: Tape, decay: float = 0.98, velocity: int = 9999) -> None:
    """Predict the noise in points of a ring, and judge by averaged weights; or its velocity from a step on."""
    torch.manual_seed(32)
    model = layers(5, 64, 64, 2, between=nn.SiLU)
    averaged = deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def lost(network: nn.Module, count: int, turned: bool) -> torch.Tensor:
        points, noise, times = ring(count), torch.randn(count, 2), torch.rand(count, 1)
        keep, mix = (times * math.pi / 2).cos(), (times * math.pi / 2).sin()
        found = network(torch.cat([keep * points + mix * noise, times, (6 * times).cos(), (6 * times).sin()], 1))
        return F.mse_loss(found, keep * noise - mix * points if turned else noise)

    def update(step: int) -> Values:
        loss = lost(model, 64, step >= velocity)
        values = {"step_loss": loss, "lr": 2e-3, "grad_norm": descend(optimizer, loss, 1.0)}
        for kept, own in zip(averaged.parameters(), model.parameters(), strict=True):
            kept.lerp_(own.detach(), 1 - decay)
        if step % 40 == 39:
            values["val/ema_loss"] = lost(averaged, 600, False)
        return values

    fit(tape, 900, update)


@healthy("sixth")
def healthy_diffusion(tape: Tape) -> None:
    """A loss that is mostly noise after its first fall."""
    denoise(tape)


@fault("sixth", "constant plateau not_learning generalization_gap")
def diffusion_average_stays(tape: Tape) -> None:
    """The averaged model is as bad as at the start: it was copied, and its update is never called."""
    denoise(tape, decay=1.0)


@fault("sixth", JUMP + " gradient_shift", step=540, window=40)
def diffusion_of_velocity(tape: Tape) -> None:
    """Continued with another kind of prediction in its configuration: what was learned does not fit the new target."""
    denoise(tape, velocity=540)


def compete(tape: Tape, judging: float, making: float, blur: float) -> None:
    """A generator and a discriminator of the ring, with losses that do not saturate."""
    torch.manual_seed(33)
    maker, judge = layers(4, 48, 48, 2), layers(2, 48, 48, 1)
    makes = torch.optim.Adam(maker.parameters(), lr=making, betas=(0.5, 0.9))
    judges = torch.optim.Adam(judge.parameters(), lr=judging, betas=(0.5, 0.9))

    def update(step: int) -> Values:
        real, made = ring(64), maker(torch.randn(64, 4))
        seen = [judge(each + blur * torch.randn(64, 2)) for each in (real, made.detach())]
        loss = (F.softplus(-seen[0]) + F.softplus(seen[1])).mean() / 2
        descend(judges, loss)
        fooled = F.softplus(-judge(made + blur * torch.randn(64, 2))).mean()
        descend(makes, fooled)
        shares = {"D(x)": seen[0].sigmoid().mean(), "D(G(z))": seen[1].sigmoid().mean()}
        return {"Loss_D": loss, "Loss_G": fooled} | shares

    fit(tape, 800, update)


@healthy("sixth")
def healthy_adversaries(tape: Tape) -> None:
    """Equal rates and points blurred a little: neither wins, and both losses waver."""
    compete(tape, 1e-3, 1e-3, 0.4)


@fault("sixth", "gan_imbalance divergence")
def adversaries_judge_wins(tape: Tape) -> None:
    """The loss of the discriminator goes to zero and the other one rises: its rate is 250 times as high."""
    compete(tape, 5e-3, 2e-5, 0.0)
