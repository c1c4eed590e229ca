"""Of the fifth set: contrastive learning, autoencoders, diffusion, flows and adversaries, gone wrong and healthy."""

import math

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fifth.tasks import (
    Tensor,
    cosine,
    dense,
    descend,
    houses,
    seeded,
    set_rate,
    shuffled,
    ticks,
)
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


def rings(count: int) -> Tensor:
    """Points on two noisy rings in a plane, with eight further columns that follow from them."""
    angle, outer = 2 * math.pi * torch.rand(count), torch.randint(2, (count,))
    plane = (0.7 + 0.8 * outer)[:, None] * torch.stack((angle.cos(), angle.sin()), 1) + 0.06 * torch.randn(count, 2)
    follow = torch.cat((plane**2, torch.sin(3 * plane), plane.flip(1) * plane, plane.abs()), 1)
    return torch.cat((plane, follow + 0.1 * torch.randn(count, 8)), 1)


def pairs(
    tape: Tape, *, temperature: float = 0.1, negatives: bool = True, size: int = 48, stopped: bool = True
) -> None:
    """Two noisy views of the same rows: InfoNCE, or SimSiam where there are no negatives."""
    x, _ = houses(3000)
    model, predictor = dense(8, 64, 64, 16), dense(16, 32, 16)
    both = nn.ModuleList((model, predictor))
    scale = nn.Parameter(torch.tensor(1 / temperature).log())
    optimizer = torch.optim.Adam([*both.parameters(), scale], lr=2e-3)
    batches = shuffled(x[:2500], size=size)
    for step in ticks(tape, 600):
        (rows,) = next(batches)
        views = [model(rows + 0.25 * torch.randn_like(rows)) for _ in range(2)]
        first, second = (F.normalize(view, dim=1) for view in views)
        scores = scale.exp() * first @ second.T
        values = {"train/alignment": (first * second).sum(1).mean().item(), "train/std": first.std(0).mean().item()}
        if negatives:
            wanted = torch.arange(size)
            loss = (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)) / 2
            values |= {
                "train/top1": float((scores.argmax(1) == wanted).float().mean()),
                "train/scale": scale.exp().item(),
            }
        else:
            targets = [view.detach() if stopped else view for view in (second, first)]
            guesses = [F.normalize(predictor(view) if stopped else view, dim=1) for view in views]
            loss = -(torch.stack(guesses) * F.normalize(torch.stack(targets), dim=2)).sum(2).mean()
        norm = descend(loss, optimizer, both)
        if step % 3 == 0:
            tape.log({"train/loss": loss.item(), **values, "train/grad_norm": norm})
        if step % 75 == 74:
            with tape.span("probe"), torch.no_grad():
                held = F.normalize(model(x[2500:]), dim=1)
                noisy = F.normalize(model(x[2500:] + 0.25 * torch.randn(500, 8)), dim=1)
                found = (noisy @ held.T).argmax(1) == torch.arange(500)
            tape.log({"val/retrieval@1": float(found.float().mean())})


@fault("fifth", "not_learning plateau constant vanishing_gradients")
def temperature_inverted(tape: Tape) -> None:
    """The temperature multiplies the similarities: 0.001 instead of 10."""
    seeded(541)
    pairs(tape, temperature=1000.0)


@fault("fifth", "too_good constant plateau vanishing_gradients posterior_collapse entropy_collapse")
def siamese_collapse(tape: Tape) -> None:
    """SimSiam without `detach` and without the predictor: all rows get the same vector and the loss is -1."""
    seeded(542)
    pairs(tape, negatives=False, stopped=False)


@healthy("fifth", config={"learnable_temperature": True})
def healthy_contrast(tape: Tape) -> None:
    """InfoNCE with 24 rows in a batch and a temperature that is learned."""
    seeded(543)
    pairs(tape, size=24)


def autoencoder(tape: Tape, *, beta: float = 0.3, cycles: bool = False) -> None:
    """A variational autoencoder of ten columns; logs both parts of its loss, and the held-out ELBO."""
    x = rings(4000)
    encoder, decoder = dense(10, 64, 64, 8), dense(4, 64, 64, 10)
    both = nn.ModuleList((encoder, decoder))
    optimizer = torch.optim.Adam(both.parameters(), lr=2e-3)
    batches = shuffled(x[:3500], size=32)

    def parts(rows: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = encoder(rows).chunk(2, 1)
        again = decoder(mean + torch.randn_like(mean) * (0.5 * spread).exp())
        kl = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1).mean()
        return 10 * F.mse_loss(again, rows), kl

    for step in ticks(tape, 800):
        share = beta * min(1.0, (step % 200) / 100 if cycles and step < 600 else (step / 200))
        recon, kl = parts(next(batches)[0])
        descend(recon + share * kl, optimizer, both)
        if step % 4 == 0:
            losses = {"loss": (recon + share * kl).item(), "recon_loss": recon.item(), "kl_loss": kl.item()}
            tape.log({**losses, "beta": share})
        if step % 100 == 99:
            with torch.no_grad():
                recon, kl = parts(x[3500:])
            tape.log({"val_recon_loss": recon.item(), "val_kl_loss": kl.item()})


@fault("fifth", "posterior_collapse plateau not_learning constant")
def beta_of_a_sum(tape: Tape) -> None:
    """Beta is 12, from a paper that sums over pixels where this loss is a mean: the code is not used."""
    seeded(544)
    autoencoder(tape, beta=12.0)


@healthy("fifth", config={"kl_annealing": "cyclical"})
def healthy_cycles_of_beta(tape: Tape) -> None:
    """Beta rises from 0 three times and stays."""
    seeded(545)
    autoencoder(tape, beta=0.1, cycles=True)


def denoiser(tape: Tape, *, fresh_noise: bool = False, rescaled_at: int = 10**9, size: int = 64) -> None:
    """Diffusion of ten columns: the noise is predicted; an average of the weights is evaluated at fixed times."""
    x = rings(4000)
    model, average = dense(12, 96, 96, 10, activation=nn.SiLU), dense(12, 96, 96, 10, activation=nn.SiLU)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    batches = shuffled(x[:3500], size=size)
    held = (torch.linspace(0.02, 0.98, 500)[:, None], torch.randn(500, 10))

    def error(network: nn.Module, rows: Tensor, when: Tensor, noise: Tensor, target: Tensor) -> Tensor:
        mixed = (when * math.pi / 2).cos() * rows + (when * math.pi / 2).sin() * noise
        return F.mse_loss(network(torch.cat((mixed, when, when.square()), 1)), target)

    for step in ticks(tape, 800):
        (rows,) = next(batches)
        rows = 12 * rows + 6 if step >= rescaled_at else rows
        noise = torch.randn_like(rows)
        rate = set_rate(optimizer, cosine(step, 800, 3e-3, warmup=80))
        target = torch.randn_like(rows) if fresh_noise else noise
        loss = error(model, rows, torch.rand(len(rows), 1), noise, target)
        norm = descend(loss, optimizer, model, 1.0)
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.data.lerp_(fast.data, min(0.02, 10 / (step + 10)))
        tape.log({"train_loss": loss.item(), "grad_norm": norm, "lr": rate})
        if step % 80 == 79:
            with torch.no_grad():
                tape.log({"val_loss_ema": error(average, x[3500:], *held, held[1]).item()})


@fault("fifth", "not_learning plateau constant")
def noise_drawn_again(tape: Tape) -> None:
    """The loss compares with noise that is drawn again: nothing can be predicted and the loss stays at 1."""
    seeded(546)
    denoiser(tape, fresh_noise=True)


@fault("fifth", "level_shift generalization_gap divergence accuracy_drop too_good gradient_shift", step=450, window=60)
def latents_not_scaled(tape: Tape) -> None:
    """From step 450 on latents come from a cache that was written without mean and scale: 12 times as wide."""
    seeded(547)
    denoiser(tape, rescaled_at=450)


@healthy("fifth")
def healthy_denoiser(tape: Tape) -> None:
    """Sixteen rows in a batch: the loss depends more on the times that are drawn than on what is learned."""
    seeded(548)
    denoiser(tape, size=16)


def flow(tape: Tape, *, sign: float = 1.0) -> None:
    """Affine couplings by maximum likelihood, in nats: the loss passes through zero."""
    x = rings(4000)
    nets = nn.ModuleList(dense(5, 48, 48, 10, activation=nn.Tanh) for _ in range(6))
    optimizer = torch.optim.Adam(nets.parameters(), lr=1.5e-3)
    batches = shuffled(x[:3500], size=64)

    def cost(rows: Tensor) -> Tensor:
        volume = torch.zeros(len(rows))
        for net in nets:
            left, right = rows.chunk(2, 1)
            scale, shift = net(left).chunk(2, 1)
            scale = 2 * torch.tanh(scale / 2)
            rows, volume = torch.cat((right * scale.exp() + shift, left), 1), volume + scale.sum(1)
        return (0.5 * rows.square().sum(1) + 5 * math.log(2 * math.pi) - sign * volume).mean()

    for step in ticks(tape, 700):
        loss = cost(next(batches)[0])
        norm = descend(loss, optimizer, nets, 5.0)
        if step % 2 == 0:
            tape.log({"nll": loss.item(), "grad_norm": norm})
        if step % 100 == 99:
            with torch.no_grad():
                tape.log({"val_nll": cost(x[3500:]).item()})


@fault("fifth", "too_good absurd_loss divergence exploding_gradients plateau vanishing_gradients constant")
def volume_with_the_wrong_sign(tape: Tape) -> None:
    """The logarithm of the determinant is added instead of subtracted: all points are pressed into one."""
    seeded(549)
    flow(tape, sign=-1.0)


@healthy("fifth")
def healthy_flow(tape: Tape) -> None:
    """A likelihood that rises beyond zero nats."""
    seeded(550)
    flow(tape)


def adversaries(tape: Tape, *, judge_rate: float = 2e-4, lost_at: int = 10**9) -> None:
    """A generator of points on rings and a judge, with the non-saturating loss."""
    x = rings(4000)[:, :2]
    maker, judge = dense(8, 64, 64, 2), dense(2, 64, 64, 1, activation=nn.SiLU)
    makes = torch.optim.Adam(maker.parameters(), lr=4e-4, betas=(0.5, 0.99))
    judges = torch.optim.Adam(judge.parameters(), lr=judge_rate, betas=(0.5, 0.99))
    batches = shuffled(x, size=64)
    for step in ticks(tape, 900):
        (real,) = next(batches)
        fake = maker(torch.randn(64, 8))
        if step >= lost_at:
            fake = fake + 4.0
        truth, lie = judge(real + 0.1 * torch.randn(64, 2)), judge(fake.detach() + 0.1 * torch.randn(64, 2))
        loss_d = (F.softplus(-truth) + F.softplus(lie)).mean()
        descend(loss_d, judges, judge)
        loss_g = F.softplus(-judge(fake)).mean()
        norm = descend(loss_g, makes, maker, 10.0)
        if step % 3 == 0:
            values = {"D(x)": truth.sigmoid().mean().item(), "D(G(z))": lie.sigmoid().mean().item()}
            tape.log({"loss_D": loss_d.item(), "loss_G": loss_g.item(), **values, "grad_norm_G": norm})


@fault("fifth", "gan_imbalance level_shift divergence vanishing_gradients spike", step=450, window=60)
def generated_shifted(tape: Tape) -> None:
    """From step 450 on the generated points are shifted out of the range by a change of the output scaling."""
    seeded(551)
    adversaries(tape, lost_at=450)


@healthy("fifth")
def healthy_adversaries(tape: Tape) -> None:
    """Both learn at the same pace, with noise on what the judge sees."""
    seeded(552)
    adversaries(tape)
