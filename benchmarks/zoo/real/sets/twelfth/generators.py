"""The twelfth set: an autoencoder, an adversarial pair and a diffusion model."""

import math
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.twelfth.tasks import (
    Change,
    F,
    Schedule,
    Training,
    Values,
    constant,
    cosine,
    nn,
    run_steps,
)
from benchmarks.zoo.real.tape import Tape


def spots(count: int) -> torch.Tensor:
    """Pictures of 12 by 12 with a bright spot of some size somewhere, as rows from -1 to 1."""
    place = 2 + 8 * torch.rand(count, 2, 1, 1)
    size = 1.2 + 1.6 * torch.rand(count, 1, 1)
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    far = (y - place[:, 0]).square() + (x - place[:, 1]).square()
    return (2 * (-far / (2 * size * size)).exp() - 1).flatten(1)


class Autoencoder(nn.Module):  # type: ignore[misc]
    """A variational autoencoder with eight hidden values."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(144, 96), nn.ReLU(), nn.Linear(96, 16))
        self.decode = nn.Sequential(nn.Linear(8, 96), nn.ReLU(), nn.Linear(96, 144))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The error of what is built again, and how far the hidden values are from noise, for a picture."""
        mean, log_variance = self.encode(x).chunk(2, 1)
        built = self.decode(mean + (log_variance / 2).exp() * torch.randn_like(mean))
        far = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()
        return 4 * (built - x).square().sum(1).mean(), far


def autoencoder(tape: Tape, seed: int, weight: Schedule, steps: int = 500) -> None:
    """Spots by an autoencoder: both parts of its loss, each tenth step and on held-out pictures."""
    torch.manual_seed(seed)
    held = spots(500)
    now = {"weight": 0.0, "built": 0.0, "far": 0.0}

    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        built, far = model(batch)
        now.update(built=built.item(), far=far.item())
        return built + now["weight"] * far

    def change(job: Training, step: int) -> None:
        now["weight"] = weight(step)

    def report(job: Training, step: int) -> Values | None:
        if step % 5 != 4:
            return None
        found: Values = {"train/loss": job.train_loss, "train/recon_loss": now["built"], "train/kl_loss": now["far"]}
        found |= {"train/beta": now["weight"], "train/lr": job.lr}
        if step % 50 == 49:
            found["val/loss"] = job.held_out(held)
            found |= {"val/recon_loss": now["built"], "val/kl_loss": now["far"]}
        return found

    model = Autoencoder()
    job = Training(
        tape, model, lambda: spots(64), loss_of, report, torch.optim.Adam(model.parameters()), constant(2e-3)
    )
    job.run(steps, change)


@healthy("twelfth", config={"model": "vae", "latent_dim": 8, "beta": 1.0, "beta_warmup_steps": 200, "lr": 2e-3})
def autoencoder_weight_comes_slowly(tape: Tape) -> None:
    """The weight of the divergence rises for two hundred steps, so the loss rises a little with it."""
    autoencoder(tape, 1201, lambda step: min(1.0, step / 200))


@fault(
    "twelfth",
    "posterior_collapse",
    config={"model": "vae", "latent_dim": 8, "beta": 120.0, "beta_warmup_steps": 0, "lr": 2e-3},
)
def autoencoder_hides_nothing(tape: Tape) -> None:
    """The mean of the divergence is weighted as if it were a sum: the hidden values become noise."""
    autoencoder(tape, 1202, constant(120.0))


def adversaries(tape: Tape, seed: int, change: Change | None = None, steps: int = 520) -> None:
    """Spots by a generator against a discriminator, in the names of the DCGAN tutorial."""
    torch.manual_seed(seed)
    maker = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 144), nn.Tanh())
    judge = nn.Sequential(nn.Linear(144, 64), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(64, 1))
    of_maker = torch.optim.Adam(maker.parameters(), 1e-3, betas=(0.5, 0.999))
    of_judge = torch.optim.Adam(judge.parameters(), 3e-4, betas=(0.5, 0.999))
    ones, zeros = torch.full((64,), 0.9), torch.zeros(64)
    parts: dict[str, Any] = {"wanted": ones}

    def act(step: int) -> Values:
        if change is not None:
            change(parts, step)
        with tape.span("train.data_load"):
            real = spots(64)
        made = maker(torch.randn(64, 16))
        of_real, of_made = judge(real)[:, 0], judge(made.detach())[:, 0]
        judged = F.binary_cross_entropy_with_logits(of_real, ones)
        judged = judged + F.binary_cross_entropy_with_logits(of_made, zeros)
        of_judge.zero_grad()
        judged.backward()
        of_judge.step()
        fooled = judge(made)[:, 0]
        loss = F.binary_cross_entropy_with_logits(fooled, parts["wanted"])
        of_maker.zero_grad()
        loss.backward()
        of_maker.step()
        found = {"Loss_D": judged.item(), "Loss_G": loss.item(), "D(x)": of_real.sigmoid().mean().item()}
        return found | {"D(G(z))": fooled.sigmoid().mean().item()}

    run_steps(tape, steps, act)


GAN = {"nz": 16, "batch_size": 64, "lr_g": 1e-3, "lr_d": 3e-4, "beta1": 0.5, "label_smoothing": 0.1}


@healthy("twelfth", config=GAN)
def adversaries_about_even(tape: Tape) -> None:
    """Neither side wins; both losses go up and down about their middle."""
    adversaries(tape, 1211)


@fault("twelfth", "gan_imbalance divergence level_shift", step=280, window=25, config=GAN)
def adversaries_wanted_is_the_other(tape: Tape) -> None:
    """From 280 on the generator is told to be found out: the discriminator is always right about what it makes."""

    def change(parts: dict[str, Any], step: int) -> None:
        if step == 280:
            parts["wanted"] = torch.zeros(64)

    adversaries(tape, 1212, change)


def diffusion(tape: Tape, seed: int, change: Change | None = None, steps: int = 460) -> None:
    """Noise in spots by a network, in the names of the diffusers examples, with a mean of the weights kept apart."""
    torch.manual_seed(seed)
    levels = torch.cumprod(1 - torch.linspace(1e-3, 0.12, 50), 0)
    parts: dict[str, Any] = {"levels": levels}
    model = nn.Sequential(nn.Linear(145, 160), nn.SiLU(), nn.Linear(160, 160), nn.SiLU(), nn.Linear(160, 144))
    mean = [weight.detach().clone() for weight in model.parameters()]

    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        at = torch.randint(0, 50, (len(batch),))
        level = parts["levels"][at][:, None]
        noise = torch.randn_like(batch)
        given = level.sqrt() * batch + (1 - level).sqrt() * noise
        return F.mse_loss(model(torch.cat((given, at[:, None] / 50), 1)), noise)

    def report(job: Training, step: int) -> Values:
        for kept, weight in zip(mean, job.model.parameters(), strict=True):
            kept.lerp_(weight.detach(), 0.02)
        ema = 1 - (1 + step) ** -0.75
        return {"train_loss": job.train_loss, "lr": job.lr, "grad_norm": job.grad_norm, "ema_decay": max(0.0, ema)}

    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    rate = cosine(2e-3, steps, 40)
    job = Training(tape, model, lambda: spots(64), loss_of, report, optimizer, rate, clip=1.0)
    job.parts = parts
    job.run(steps, change)


DIFFUSION = {"num_train_timesteps": 50, "beta_schedule": "linear", "learning_rate": 2e-3, "use_ema": True}


@healthy("twelfth", config=DIFFUSION)
def diffusion_with_a_mean_of_weights(tape: Tape) -> None:
    """The loss of a step depends on the levels of noise that were drawn."""
    diffusion(tape, 1221)


@fault("twelfth", "not_finite", step=310, window=20, config=DIFFUSION)
def diffusion_root_of_less_than_zero(tape: Tape) -> None:
    """From 310 on the levels are scaled a little above one: the root of what is left is no number."""

    def change(job: Training, step: int) -> None:
        if step == 310:
            job.parts["levels"] = job.parts["levels"] * math.sqrt(1.02)

    diffusion(tape, 1222, change)
