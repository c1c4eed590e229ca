"""The third set, models: characters, autoencoders, contrasted views, diffusion, and two networks against each other."""

import math
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.zoo.real.change import add_fault, add_healthy
from benchmarks.zoo.real.journal_tapes import user_run
from benchmarks.zoo.real.sets.third.digits import digits
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
TEXT = " ".join(each.__doc__ or "" for each in (math, math.fsum, np, np.ndarray, np.einsum, torch.nn.Linear)).lower()
CHARACTERS = sorted(set(TEXT))
IDS = torch.tensor([CHARACTERS.index(each) for each in TEXT])
Batch = tuple[torch.Tensor, torch.Tensor]


class Characters(nn.Module):
    """One layer of attention over characters."""

    def __init__(self, causal: bool = True, width: int = 32) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(len(CHARACTERS), width), nn.Parameter(0.02 * torch.randn(32, width))
        self.asked, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head, self.causal = nn.Linear(width, len(CHARACTERS)), causal

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of the next character."""
        length = ids.shape[1]
        inside = self.embed(ids) + self.places[:length]
        query, key, value = self.asked(self.first(inside)).chunk(3, -1)
        scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
        if self.causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -1e9)
        inside = inside + self.out(scores.softmax(-1) @ value)
        return self.head(inside + self.inner(self.second(inside)))  # type: ignore[no-any-return]


def per_token(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of all places."""
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten())


def wrong_axis(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The softmax is over the batch."""
    return F.nll_loss(scores.log_softmax(0).flatten(0, 1), wanted.flatten())


def _drawn(first: int, last: int, batch: int, length: int) -> Batch:
    starts = torch.randint(first, last - length - 2, (batch,)).tolist()
    return torch.stack([IDS[at : at + length] for at in starts]), torch.stack(
        [IDS[at + 1 : at + length + 1] for at in starts]
    )


def language(
    tape: Tape,
    steps: int = 450,
    batch: int = 16,
    parts: int = 1,
    every: int = 1,
    causal: bool = True,
    names: tuple[str, str] = ("loss", "learning_rate"),
    watched: bool = True,
    evaluated: bool = True,
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = per_token,
    change: Callable[[int, torch.Tensor, torch.Tensor], Batch] = lambda step, ids, wanted: (ids, wanted),
    detached: int | None = None,
) -> None:
    """A language model of characters, with warm-up, cosine and clipping."""
    torch.manual_seed(3)
    model = Characters(causal)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 40, 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps))))
    )
    cut = int(0.9 * len(IDS))
    config = {"learning_rate": 3e-3, "warmup_steps": 40, "max_steps": steps, "vocab_size": len(CHARACTERS)}
    with user_run(tape, watched=watched, gradient_accumulation_steps=parts, **config) as run:
        for step in range(steps):
            with run.step(step):
                total = torch.zeros(())
                for _ in range(parts):
                    ids, wanted = change(step, *_drawn(0, cut, batch, 32))
                    cut_off = detached is not None and step >= detached
                    scores = model.head(model.embed(ids).detach()) if cut_off else model(ids)
                    loss = loss_of(scores, wanted) / parts
                    loss.backward()
                    total += loss.detach()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                values = {names[0]: total, names[1]: optimizer.param_groups[0]["lr"], "grad_norm": norm}
                values = values if step % every == 0 else {}
                if evaluated and step % 50 == 49:
                    with torch.no_grad():
                        ids, wanted = _drawn(cut, len(IDS), batch, 32)
                        values["eval/loss"] = per_token(model(ids), wanted)
                if values:
                    run.log(values, category="trainer")


def autoencoder(
    tape: Tape,
    beta: float = 1.0,
    warm: int = 150,
    every: int = 1,
    watched: bool = False,
    names: tuple[str, str, str] = ("recon_loss", "kl_loss", "loss"),
) -> None:
    """A variational autoencoder of digits, whose KL term is phased in."""
    torch.manual_seed(0)
    points = digits()[0]
    encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
    with user_run(tape, watched=watched, beta=beta, lr=2e-3, latent=8) as run:
        for step in range(500):
            with run.step(step):
                given = points[torch.randint(0, len(points), (64,))]
                mean, spread = encoder(given).chunk(2, -1)
                hidden = mean + (0.5 * spread).exp() * torch.randn_like(mean)
                drawn = F.binary_cross_entropy_with_logits(decoder(hidden), given, reduction="none").sum(1).mean()
                kl = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()
                weight = beta * min(1.0, step / warm) if warm else beta
                loss = drawn + weight * kl
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % every == 0:
                    run.log({names[0]: drawn, names[1]: kl, names[2]: loss, "beta": weight}, category="trainer")


def contrast(tape: Tape, temperature: float = 0.1, collapsed: int | None = None) -> None:
    """Two noisy views of a digit must be more alike than those of others."""
    torch.manual_seed(0)
    points = digits()[0]
    encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    own = torch.arange(64)
    with user_run(tape, watched=True, temperature=temperature, batch_size=64, lr=1e-3) as run:
        for step in range(400):
            with run.step(step):
                given = points[torch.randint(0, len(points), (64,))]
                one, other = (F.normalize(encoder(given + 0.1 * torch.randn_like(given)), dim=1) for _ in range(2))
                if collapsed is not None and step >= collapsed:
                    one, other = one * 0 + one.mean(0), other * 0 + other.mean(0)
                alike = one @ other.T / temperature
                loss = F.cross_entropy(alike, own)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right = (alike.argmax(1) == own).float().mean()
                run.log({"nt_xent": loss, "top1": right}, category="trainer")


def diffusion(tape: Tape, clean_from: int | None = None) -> None:
    """Predicts the noise on points of a ring, with an average of the weights; hardly any noise from a step on."""
    torch.manual_seed(0)
    angles = 6.283 * torch.rand(2000)
    points = torch.stack([angles.cos(), angles.sin()], 1) + 0.05 * torch.randn(2000, 2)
    model = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
    average = [each.detach().clone() for each in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.05, 100), 0)
    with user_run(tape, timesteps=100, lr=1e-3) as run:
        for step in range(600):
            with run.step(step):
                given, at = points[torch.randint(0, 2000, (128,))], torch.randint(0, 100, (128,))
                share, noise = kept[at, None], torch.randn_like(given)
                if clean_from is not None and step >= clean_from:
                    share = torch.full_like(share, 0.9995)
                seen = torch.cat([share.sqrt() * given + (1 - share).sqrt() * noise, at[:, None] / 100], 1)
                loss = F.mse_loss(model(seen), noise)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                for slow, fast in zip(average, model.parameters(), strict=True):
                    slow.lerp_(fast.detach(), 0.01)
                run.log({"diffusion/mse": loss, "lr": 1e-3}, category="trainer")


def two_networks(
    tape: Tape,
    steps: int = 900,
    rates: tuple[float, float] = (5e-4, 1e-3),
    rounds: int = 1,
    names: tuple[str, str] = ("d_loss", "g_loss"),
) -> None:
    """A generator of points on a ring, and a discriminator."""
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(8, 48), nn.LeakyReLU(0.2), nn.Linear(48, 2))
    judge = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
    judged = torch.optim.Adam(judge.parameters(), lr=rates[0], betas=(0.5, 0.99))
    made = torch.optim.Adam(maker.parameters(), lr=rates[1], betas=(0.5, 0.99))
    yes, no = torch.ones(128, 1), torch.zeros(128, 1)
    entropy = F.binary_cross_entropy_with_logits
    with user_run(tape, lr_d=rates[0], lr_g=rates[1]) as run:
        for step in range(steps):
            with run.step(step):
                for _ in range(rounds):
                    angle = 6.283 * torch.rand(128, 1)
                    real = judge(2 * torch.cat([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(128, 2) + 3)
                    lost = entropy(real, yes) + entropy(judge(maker(torch.randn(128, 8)).detach()), no)
                    judged.zero_grad()
                    lost.backward()
                    judged.step()
                deceived = entropy(judge(maker(torch.randn(128, 8))), yes)
                made.zero_grad()
                deceived.backward()
                made.step()
                values = {names[0]: lost, names[1]: deceived, "D_x": real.sigmoid().mean()}
                run.log(values, category="trainer")


def _shorter(step: int, ids: torch.Tensor, wanted: torch.Tensor) -> Batch:
    """Eight characters at first, 16 from step 150 on, 32 from step 300 on."""
    length = 8 if step < 150 else 16 if step < 300 else 32
    return ids[:, :length], wanted[:, :length]


def _any_length(step: int, ids: torch.Tensor, wanted: torch.Tensor) -> Batch:
    length = int(torch.randint(8, 33, ()))
    return ids[:, :length], wanted[:, :length]


def _renumbered(step: int, ids: torch.Tensor, wanted: torch.Tensor) -> Batch:
    """The numbers of the characters are others from step 250 on."""
    order = torch.randperm(len(CHARACTERS), generator=torch.Generator().manual_seed(5))
    return (order[ids], order[wanted]) if step >= 250 else (ids, wanted)


def _not_shifted(step: int, ids: torch.Tensor, wanted: torch.Tensor) -> Batch:
    return ids, ids


ODD = ("vae/reconstruction", "vae/kld", "vae/elbo")
add_healthy("third", "healthy_language", language)
add_healthy(
    "third", "healthy_language_parts", language, parts=4, batch=6, every=10, steps=300, names=("train_loss", "lr")
)
add_healthy(
    "third", "healthy_language_any_length", language, change=_any_length, watched=False, names=("lm_loss", "lr"),
    evaluated=False,
)  # fmt: skip
add_healthy("third", "healthy_language_curriculum", language, change=_shorter)
add_fault("third", "language_no_mask", "too_good absurd_loss level_shift", language, causal=False, steps=500)
add_fault("third", "language_not_shifted", "too_good absurd_loss", language, change=_not_shifted)
add_fault("third", "language_wrong_axis", "not_learning plateau constant absurd_loss", language, loss_of=wrong_axis)
add_fault(
    "third", "language_renumbered", "level_shift spike divergence bad_resume", language, change=_renumbered, every=10,
    watched=False, names=("train_loss", "lr"),
)  # fmt: skip
add_fault(
    "third", "language_detached",
    "plateau level_shift unused_parameters vanishing_gradients gradient_shift spike weights_frozen", language,
    detached=250,
)  # fmt: skip
add_healthy("third", "healthy_autoencoder", autoencoder, beta=0.5)
add_healthy("third", "healthy_autoencoder_seldom", autoencoder, beta=0.3, warm=0, every=5, names=ODD)
add_fault(
    "third", "autoencoder_collapses",
    "posterior_collapse constant plateau not_learning vanishing_gradients level_shift", autoencoder, beta=30.0, warm=0,
    watched=True,
)  # fmt: skip
add_healthy("third", "healthy_contrast", contrast)
add_fault("third", "contrast_temperature", "not_learning plateau", contrast, temperature=100.0)
add_healthy("third", "healthy_diffusion", diffusion)
add_fault(
    "third", "diffusion_hardly_any_noise", "level_shift spike plateau divergence not_learning", diffusion,
    clean_from=300,
)  # fmt: skip
add_healthy("third", "healthy_two_networks", two_networks)
add_healthy("third", "healthy_two_networks_two_rates", two_networks, rates=(1e-3, 5e-4), names=("loss/D", "loss/G"))
add_fault(
    "third", "two_networks_one_wins", "gan_imbalance weights_frozen divergence", two_networks, rates=(2e-2, 1e-5),
    rounds=5, steps=400,
)  # fmt: skip
