"""An autoencoder and a GAN: their faults and their healthy characters."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.first.loop import Batch, Loop, cosine
from benchmarks.zoo.real.sets.first.supervised_faults import put
from benchmarks.zoo.real.tape import Tape

STEPS = 380
NAMES = {"loss": "recon_loss", "grad": "grad_norm", "lr": "lr", "val_loss": "val/recon_loss"}


def autoencoder(steps: int = STEPS, lr: float = 3e-3, noise: float = 0.0, **parts: object) -> Loop:
    """Thirty-two numbers that come from five."""
    made = torch.Generator().manual_seed(3)
    mixing = torch.randn(5, 32, generator=made)
    data = torch.tanh(torch.randn(4000, 5, generator=made) @ mixing / 2) + 0.05 * torch.randn(4000, 32, generator=made)
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 5), nn.Linear(5, 48), nn.Tanh(), nn.Linear(48, 32)
    )

    def draw(step: int) -> Batch:
        chosen = data[torch.randint(0, 3600, (64,))]
        return chosen + noise * torch.randn_like(chosen), chosen

    def held_out() -> dict[str, float]:
        return {"val_loss": nn.functional.mse_loss(model(data[3600:]), data[3600:]).item()}

    loop = Loop(model, draw, nn.functional.mse_loss, lr, steps=steps, names=NAMES, evaluate=held_out)
    loop.schedule = cosine(steps, 10)
    for name, part in parts.items():
        setattr(loop, name, part)
    return loop


put("autoencoder", autoencoder, STEPS, "shuffled_labels stuck_batch frozen no_zero_grad ascent restarted_schedule", 1)
put("autoencoder", autoencoder, STEPS, "destroyed_layer bad_batch nan zero_inputs rate_too_high", 2)


@healthy("autoencoder")
def plain(run: Tape) -> None:
    """Cosine."""
    torch.manual_seed(0)
    autoencoder().fit(run)


@healthy("autoencoder")
def denoising(run: Tape) -> None:
    """Noise on the inputs, a long run."""
    torch.manual_seed(1)
    autoencoder(steps=800, noise=0.5).fit(run)


@healthy("autoencoder")
def converged_early(run: Tape) -> None:
    """A high constant rate: falls fast, then stays at its floor."""
    torch.manual_seed(2)
    autoencoder(steps=700, lr=8e-3, schedule=None).fit(run)


class Gan:
    """Learns a ring of points; a fault changes it at a step."""

    def __init__(self, d_lr: float = 1e-3, g_lr: float = 1e-3) -> None:
        nn = torch.nn
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
        self.discriminator = nn.Sequential(
            nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)
        )
        self.d_opt = torch.optim.Adam(self.discriminator.parameters(), lr=d_lr, betas=(0.5, 0.99))
        self.g_opt = torch.optim.Adam(self.generator.parameters(), lr=g_lr, betas=(0.5, 0.99))
        self.shift, self.g_updates, self.d_updates = 0.0, True, 1

    def real(self, count: int = 64) -> torch.Tensor:
        """Points of the ring."""
        angle = 6.28318 * torch.rand(count)
        return torch.stack([angle.cos(), angle.sin()], 1) * (1 + 0.1 * torch.randn(count, 1)) + self.shift

    def fit(
        self, run: Tape, steps: int = 500, at: Callable[["Gan", int], None] | None = None, names: Any = None
    ) -> None:
        """Train both."""
        d_name, g_name = names or ("d_loss", "g_loss")
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        for step in range(steps):
            if at is not None:
                at(self, step)
            with run.step(step):
                for _ in range(self.d_updates):
                    fake = self.generator(torch.randn(64, 4)).detach()
                    true = self.real()
                    d_true, d_fake = self.discriminator(true), self.discriminator(fake)
                    d_loss = (bce(d_true, torch.ones(64, 1)) + bce(d_fake, torch.zeros(64, 1))) / 2
                    self.d_opt.zero_grad()
                    d_loss.backward()
                    self.d_opt.step()
                g_loss = bce(self.discriminator(self.generator(torch.randn(64, 4))), torch.ones(64, 1))
                self.g_opt.zero_grad()
                g_loss.backward()
                if self.g_updates:
                    self.g_opt.step()
                run.log({d_name: d_loss.item(), g_name: g_loss.item()})


@healthy("gan")
def balanced(run: Tape) -> None:
    """Both losses swing around ln 2."""
    torch.manual_seed(0)
    Gan().fit(run)


@healthy("gan")
def other_names(run: Tape) -> None:
    """Names as in tutorials, another seed."""
    torch.manual_seed(3)
    Gan(2e-3, 1e-3).fit(run, 700, names=("Loss_D", "Loss_G"))


@healthy("gan")
def two_updates(run: Tape) -> None:
    """Two updates of the discriminator per step."""
    torch.manual_seed(4)
    gan = Gan(5e-4, 1e-3)
    gan.d_updates = 2
    gan.fit(run, 600, names=("loss/discriminator", "loss/generator"))


@fault("gan", "gan_imbalance", 300, window=80, says="discriminator")
def discriminator_wins(run: Tape) -> None:
    """From step 300 on the generator is not updated: the discriminator wins."""
    torch.manual_seed(1)

    def at(gan: Gan, step: int) -> None:
        if step == 300:
            gan.g_updates, gan.d_updates = False, 4
            for group in gan.d_opt.param_groups:
                group["lr"] = 5e-3

    Gan().fit(run, 700, at)


@fault("gan", "gan_imbalance", window=400, says="discriminator")
def discriminator_wins_from_the_start(run: Tape) -> None:
    """The generator's rate is far too low, the discriminator's too high."""
    torch.manual_seed(2)
    gan = Gan(8e-3, 1e-6)
    gan.d_updates = 3
    gan.fit(run, 500, names=("D_loss", "G_loss"))


@fault("gan", "spike level_shift gan_imbalance", 350, window=40)
def generator_destroyed(run: Tape) -> None:
    """The generator's output layer is drawn anew, twenty times as wide."""
    torch.manual_seed(5)

    def at(gan: Gan, step: int) -> None:
        if step == 350:
            with torch.no_grad():
                gan.generator[4].weight.normal_(0, 8.0)  # type: ignore[union-attr, operator]
                gan.generator[4].bias.fill_(10.0)  # type: ignore[union-attr, operator]

    Gan().fit(run, 600, at)


@fault("gan", "not_finite", 250, window=2)
def nan(run: Tape) -> None:
    """A weight of the discriminator becomes NaN."""
    torch.manual_seed(6)

    def at(gan: Gan, step: int) -> None:
        if step == 250:
            with torch.no_grad():
                gan.discriminator[0].weight[0, 0] = float("nan")  # type: ignore[index]

    Gan().fit(run, 300, at)
