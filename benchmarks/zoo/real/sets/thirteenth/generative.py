"""The thirteenth set: pictures from a code, points from noise, and two networks against each other."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.thirteenth.digits import digits
from benchmarks.zoo.real.sets.thirteenth.tasks import Learner, Values, cosine, dense, drive, flat
from benchmarks.zoo.real.tape import Tape

DIFFUSERS = {"model": "unet1d", "num_train_timesteps": 60, "train_batch_size": 96, "use_ema": True}


class Coder(nn.Module):  # type: ignore[misc]
    """A variational autoencoder of pictures of 14 by 14."""

    def __init__(self, code: int = 8, width: int = 96) -> None:
        super().__init__()
        self.read = dense((196, width, 2 * code))
        self.write = dense((code, width, 196))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The picture again, and the mean and logarithm of the variance of its code."""
        mean, spread = self.read(x).chunk(2, 1)
        return self.write(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread


def code(tape: Tape, weight: Callable[[int], float], summed: bool, seed: int, steps: int = 420) -> None:
    """A loop written by hand that prints both parts of its loss; the error of a picture is summed or its mean."""
    torch.manual_seed(seed)
    pictures = digits(2000, 0.1)[0].flatten(1)
    work = Learner(Coder(), flat(2e-3), clip=100.0)

    def act(step: int) -> Values:
        x = pictures[torch.randint(0, 2000, (64,))]
        parts: list[torch.Tensor] = []

        def loss() -> torch.Tensor:
            again, mean, spread = work.model(x)
            off = (again - x).square()
            parts.append(off.sum(1).mean() if summed else off.mean())
            parts.append((mean.square() + spread.exp() - 1 - spread).sum(1).mean() / 2)
            return parts[0] + weight(step) * parts[1]

        work.take(step, loss)
        return {"loss": work.loss, "recon_loss": parts[0], "kld": parts[1], "kl_weight": weight(step)}

    drive(tape, steps, act)


@healthy("thirteenth", config={"model": "vae", "latent_dim": 8, "kl_anneal_steps": 200, "batch_size": 64})
def healthy_code_with_growing_weight(tape: Tape) -> None:
    """The weight of the divergence grows from nothing to one over two hundred steps, and the loss with it."""
    code(tape, lambda step: min(1.0, step / 200), summed=True, seed=1361)


@fault(
    "thirteenth",
    "posterior_collapse",
    config={"model": "vae", "latent_dim": 8, "kl_weight": 1.0, "batch_size": 64, "reduction": "mean"},
)
def code_that_says_nothing(tape: Tape) -> None:
    """The error is the mean over 196 points and the divergence a sum over the code: the code is given up at once."""
    code(tape, lambda step: 1.0, summed=False, seed=1362)


def spiral(count: int) -> torch.Tensor:
    """Points on a spiral with two arms."""
    turn = 0.5 + 2.5 * torch.rand(count).sqrt()
    side = (torch.rand(count) < 0.5).float() * 2 - 1
    return (side * turn / 2)[:, None] * torch.stack([(2 * turn).cos(), (2 * turn).sin()], 1) + 0.03 * torch.randn(
        count, 2
    )


def denoise(tape: Tape, batch: Callable[[int], torch.Tensor], seed: int, steps: int = 500) -> None:
    """Noise told from points, in the names of the diffusers' scripts."""
    torch.manual_seed(seed)
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.12, 60), 0)
    work = Learner(dense((2 + 8, 80, 80, 2), nn.SiLU), cosine(3e-3, steps, 20), clip=1e9)
    shadow = [weight.detach().clone() for weight in work.model.parameters()]

    def loss(points: torch.Tensor) -> torch.Tensor:
        at = torch.randint(0, 60, (len(points),))
        noise = torch.randn_like(points)
        seen = kept[at, None].sqrt() * points + (1 - kept[at, None]).sqrt() * noise
        waves = at[:, None] / 60 * torch.tensor([1.0, 2.0, 4.0, 8.0]) * math.pi
        return F.mse_loss(work.model(torch.cat([seen, waves.sin(), waves.cos()], 1)), noise)

    def act(step: int) -> Values:
        work.take(step, lambda: loss(batch(step)))
        decay = min(0.995, (1 + step) / (10 + step))
        for old, new in zip(shadow, work.model.parameters(), strict=True):
            old.lerp_(new.detach(), 1 - decay)
        return {"loss": work.loss, "grad_norm": work.norm, "lr": work.now, "ema_decay": decay}

    drive(tape, steps, act)


@healthy("thirteenth", config=DIFFUSERS)
def healthy_spiral(tape: Tape) -> None:
    """The loss falls early, and stays noisy: how hard a batch is depends on the times that are drawn."""
    denoise(tape, lambda step: spiral(96), 1363)


@fault("thirteenth", "spike exploding_gradients", step=290, window=4, config=DIFFUSERS)
def spiral_one_file_in_pixels(tape: Tape) -> None:
    """Two batches from 290 on come in pixels of 0 to 255, where all others are between -1.5 and 1.5."""
    denoise(tape, lambda step: spiral(96) * 85 + 127 if step in (290, 291) else spiral(96), 1364)


@healthy("thirteenth", config={"arch": "dcgan", "lrD": 1e-3, "lrG": 1e-3, "beta1": 0.5, "batch": 96})
def healthy_ring_of_two_networks(tape: Tape) -> None:
    """Points on a ring by two networks in the names of the DCGAN example: both losses swing and neither wins."""
    torch.manual_seed(1365)
    maker, judge = dense((4, 48, 48, 2)), dense((2, 48, 48, 1), lambda: nn.LeakyReLU(0.2))
    first, second = (
        torch.optim.Adam(each.parameters(), 1e-3, betas=(0.5, 0.999), weight_decay=1e-4) for each in (maker, judge)
    )

    def act(step: int) -> Values:
        turn = 6.28 * torch.rand(96)
        real = torch.stack([turn.cos(), turn.sin()], 1) + 0.15 * torch.randn(96, 2)
        made = maker(torch.randn(96, 4))
        second.zero_grad()
        on_real, on_made = judge(real), judge(made.detach())
        loss_d = F.softplus(-on_real).mean() + F.softplus(on_made).mean()
        loss_d.backward()
        second.step()
        first.zero_grad()
        after = judge(made)
        loss_g = F.softplus(-after).mean()
        loss_g.backward()
        first.step()
        found = {"Loss_D": loss_d, "Loss_G": loss_g, "D(x)": on_real.sigmoid().mean()}
        found |= {"D(G(z))1": on_made.sigmoid().mean(), "D(G(z))2": after.sigmoid().mean()}
        return found | {"on_ring": ((made.norm(dim=1) - 1).abs() < 0.3).float().mean()}

    drive(tape, 480, act)
