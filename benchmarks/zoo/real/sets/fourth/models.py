"""Of the fourth set: text, segmentation, contrasted views, autoencoders, diffusion and GANs."""

import argparse
import inspect
import itertools
from collections.abc import Callable
from functools import lru_cache

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.journal_tapes import user_run
from benchmarks.zoo.real.sets.fourth.tasks import Digits, Values, batches, perceptron, trained, updated
from benchmarks.zoo.real.sets.third.digits import digits
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


@lru_cache(maxsize=1)
def text() -> tuple[torch.Tensor, int]:
    """A text as numbers, and how many different characters it has."""
    source = inspect.getsource(argparse)[:60_000]
    letters = sorted(set(source))
    return torch.tensor([letters.index(each) for each in source]), len(letters)


class Characters(nn.Module):
    """A small language model."""

    def __init__(self, letters: int, width: int = 48, context: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        self.places = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next character at each place."""
        length = tokens.shape[1]
        mask = torch.full((length, length), float("-inf"), dtype=self.head.weight.dtype).triu(1)
        return self.head(self.blocks(self.embed(tokens) + self.places(torch.arange(length)), mask=mask))  # type: ignore[no-any-return]


class Language:
    """A language model, its text and its losses."""

    def __init__(self, seed: int = 51) -> None:
        torch.manual_seed(seed)
        self.tokens, self.letters = text()
        self.model = Characters(self.letters)

    def loss(self, size: int = 12, length: int = 32, held_out: bool = False) -> torch.Tensor:
        """The loss of a batch drawn at random, or of the same held-out one each time."""
        low, high = (54_000, 59_900) if held_out else (0, 53_900)
        generator = torch.Generator().manual_seed(3) if held_out else None
        starts = torch.randint(low, high, (size,), generator=generator)
        rows = torch.stack([self.tokens[at : at + length + 1] for at in starts])
        return F.cross_entropy(self.model(rows[:, :-1]).flatten(0, 1).float(), rows[:, 1:].flatten())

    def evaluated(self) -> float:
        """The held-out loss."""
        with torch.no_grad():
            return self.loss(32, held_out=True).item()


def _cosine(step: int, steps: int, peak: float, warm: int = 30) -> float:
    if step < warm:
        return peak * (step + 1) / warm
    return float(peak * (0.02 + 0.98 * (1 + torch.cos(torch.tensor(3.14159 * (step - warm) / (steps - warm)))) / 2))


# Faults


@fault("fourth", "lr_schedule bad_resume level_shift spike gradient_shift divergence", step=300, window=40)
def schedule_lost_on_resume(tape: Tape) -> None:
    """The weights are loaded, the schedule and the optimizer are not: the rate begins again at its peak."""
    task = Language()
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=3e-3)

    def train(step: int) -> Values:
        nonlocal optimizer
        if step == 300:
            optimizer = torch.optim.AdamW(task.model.parameters(), lr=3e-3)
        lr = 3e-3 if step >= 300 else _cosine(step, 360, 3e-3)
        optimizer.param_groups[0]["lr"] = lr
        loss = task.loss()
        norm = updated(loss, optimizer, 1.0)
        return {"train/loss": loss.detach(), "train/grad_norm": norm, "train/learning_rate": lr}

    trained(tape, 400, train, lr_scheduler_type="cosine", warmup_steps=30, max_steps=400)


@fault("fourth", "plateau not_learning weights_frozen update_ratio")
def weights_in_bfloat16(tape: Tape) -> None:
    """Weights and optimizer in bfloat16 with a small rate: most updates are rounded away."""
    task = Digits(perceptron((64, 64, 64, 10)).to(torch.bfloat16))
    task.x, task.held_x = task.x.to(torch.bfloat16), task.held_x.to(torch.bfloat16)
    task.batches = batches(task.x, task.y)
    task.loss = lambda scores, y: F.cross_entropy(scores.float(), y)  # type: ignore[assignment]
    optimizer = task.adam(2e-5, weight_decay=0.0)

    def train(step: int) -> Values:
        loss, _, norm = task.step(optimizer, 1.0)
        return {"loss": loss, "grad_norm": norm, "lr": 2e-5}

    def evaluate() -> Values:
        return {"eval/loss": task.evaluated()[0]}

    trained(tape, 400, train, evaluate, evaluate_every=50, watched=True, bf16=True)


def _shapes(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy pictures with one small bright spot, and where it is: one point in sixty."""
    generator = torch.Generator().manual_seed(seed)
    masks = torch.zeros(rows, 1, 16, 16)
    corners = torch.randint(0, 14, (rows, 2), generator=generator)
    for at, (top, left) in enumerate(corners.tolist()):
        masks[at, 0, top : top + 2, left : left + 2] = 1.0
    return masks * 0.8 + 0.35 * torch.randn(rows, 1, 16, 16, generator=generator), masks


def _dice(scores: torch.Tensor, masks: torch.Tensor) -> float:
    found = (scores > 0).float()
    return float(2 * (found * masks).sum() / (found.sum() + masks.sum() + 1e-6))


def _segmented(tape: Tape, weight: float, lr: float) -> None:
    torch.manual_seed(52)
    x, masks = _shapes(600, 1)
    held_x, held_masks = _shapes(100, 2)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    source = batches(x, masks, size=16)

    def train(step: int) -> Values:
        inputs, targets = next(source)
        scores = model(inputs)
        loss = F.binary_cross_entropy_with_logits(scores, targets, pos_weight=torch.tensor(weight))
        updated(loss, optimizer)
        return {"train_loss": loss.detach(), "train_dice": _dice(scores.detach(), targets)}

    def evaluate() -> Values:
        with torch.no_grad():
            scores = model(held_x)
        right = ((scores > 0).float() == held_masks).float().mean()
        loss = F.binary_cross_entropy_with_logits(scores, held_masks, pos_weight=torch.tensor(weight))
        return {"val_loss": loss, "val_dice": _dice(scores, held_masks), "val_pixel_acc": right}

    trained(tape, 450, train, evaluate, evaluate_every=37, lr=lr)


@fault("fourth", "not_learning plateau constant dead_units dead_environment")
def only_background(tape: Tape) -> None:
    """One point in sixty is of the class that counts, and the loss is not weighted: everything is background."""
    _segmented(tape, 1.0, 0.003)


class Views:
    """An encoder and two noisy views of each digit."""

    def __init__(self) -> None:
        torch.manual_seed(53)
        self.x = digits()[0]
        self.source = batches(self.x, size=64)
        self.encoder = perceptron((64, 64, 32))
        self.predictor = perceptron((32, 16, 32))

    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The embeddings of two views."""
        (x,) = next(self.source)
        one, other = (self.encoder(x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)) for _ in range(2))
        return one, other


@fault("fourth", "too_good constant posterior_collapse plateau entropy_collapse dead_units")
def views_collapse(tape: Tape) -> None:
    """SimSiam without its stop-gradient: every picture gets the same embedding."""
    task = Views()
    parameters = itertools.chain(task.encoder.parameters(), task.predictor.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def train(step: int) -> Values:
        one, other = task.pair()
        loss = (
            -(F.cosine_similarity(task.predictor(one), other) + F.cosine_similarity(task.predictor(other), one)).mean()
            / 2
        )
        updated(loss, optimizer)
        return {"train/loss": loss.detach(), "train/embedding_std": F.normalize(one.detach(), dim=1).std(0).mean()}

    trained(tape, 500, train, lr=0.1)


def _varied(tape: Tape, weight: Callable[[int], float], names: tuple[str, str, str]) -> None:
    torch.manual_seed(54)
    x, _, held, _ = digits()
    source = batches(x, size=64)
    encoder, decoder = perceptron((64, 64, 16)), perceptron((8, 64, 64))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)

    def parts(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = encoder(inputs).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        rebuilt = (decoder(code) - inputs).square().sum(1).mean()
        return rebuilt, 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1).mean()

    def train(step: int) -> Values:
        rebuilt, divergence = parts(next(source)[0])
        loss = rebuilt + weight(step) * divergence
        updated(loss, optimizer)
        return {
            names[0]: loss.detach(),
            names[1]: rebuilt.detach(),
            names[2]: divergence.detach(),
            "beta": weight(step),
        }

    def evaluate() -> Values:
        with torch.no_grad():
            rebuilt, divergence = parts(held)
        return {"val_loss": rebuilt + weight(10_000) * divergence}

    trained(tape, 500, train, evaluate, latent_dim=8)


@fault("fourth", "posterior_collapse")
def code_says_nothing(tape: Tape) -> None:
    """A variational autoencoder whose KL term is not divided by the number of points: its weight is 20."""
    _varied(tape, lambda step: 20.0, ("loss", "reconstruction_loss", "kl_loss"))


class Denoiser:
    """Diffusion of points on a ring, with a moving average of the weights that is evaluated."""

    def __init__(self) -> None:
        torch.manual_seed(55)
        self.model, self.average = perceptron((3, 96, 96, 2)), perceptron((3, 96, 96, 2))
        self.average.load_state_dict(self.model.state_dict())

    def loss(self, model: nn.Module, size: int = 128, fixed: bool = False) -> torch.Tensor:
        """The loss of noise predicted at random times."""
        generator = torch.Generator().manual_seed(9) if fixed else None
        angle = torch.rand(size, generator=generator) * 6.2832
        clean = torch.stack([angle.cos(), angle.sin()], 1)
        times, noise = torch.rand(size, 1, generator=generator), torch.randn(size, 2, generator=generator)
        noisy = clean * torch.cos(times * 1.57) + noise * torch.sin(times * 1.57)
        return F.mse_loss(model(torch.cat([noisy, times], 1)), noise)

    def average_with(self, decay: float) -> None:
        """Move the average towards the weights."""
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.model.parameters(), strict=True):
                slow.lerp_(fast, 1 - decay)


def _denoised(tape: Tape, decay: float) -> None:
    task = Denoiser()
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=2e-3)

    def train(step: int) -> Values:
        loss = task.loss(task.model)
        norm = updated(loss, optimizer, 1.0)
        task.average_with(decay)
        return {"train_loss": loss.detach(), "grad_norm": norm, "lr": 2e-3}

    def evaluate() -> Values:
        with torch.no_grad():
            return {"val_loss_ema": task.loss(task.average, 512, fixed=True)}

    trained(tape, 700, train, evaluate, evaluate_every=50, ema_decay=decay)


@fault("fourth", "weights_frozen constant plateau not_learning")
def average_never_moves(tape: Tape) -> None:
    """The moving average has a decay of 1 (0.99999 rounded in the settings), and the samples stay noise."""
    _denoised(tape, 1.0)


def _adversaries(tape: Tape, generator_lr: float, discriminator_lr: float, steps: int = 600) -> None:
    torch.manual_seed(56)
    generator, discriminator = perceptron((4, 48, 48, 2)), perceptron((2, 64, 64, 1))
    maker = torch.optim.Adam(generator.parameters(), lr=generator_lr, betas=(0.5, 0.9))
    judge = torch.optim.Adam(discriminator.parameters(), lr=discriminator_lr, betas=(0.5, 0.9))
    yes, no = torch.ones(64, 1), torch.zeros(64, 1)

    def train(step: int) -> Values:
        angle = torch.rand(64) * 6.2832
        real = torch.stack([angle.cos() + 2, angle.sin() - 1], 1) + 0.05 * torch.randn(64, 2)
        fake = generator(torch.randn(64, 4))
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        judged = F.binary_cross_entropy_with_logits(on_real, yes) + F.binary_cross_entropy_with_logits(on_fake, no)
        updated(judged, judge)
        made = F.binary_cross_entropy_with_logits(discriminator(fake), yes)
        updated(made, maker)
        scores = {"D(x)": on_real.detach().sigmoid().mean(), "D(G(z))": on_fake.detach().sigmoid().mean()}
        return {"Loss_D": judged.detach(), "Loss_G": made.detach(), **scores}

    trained(tape, steps, train)


@fault("fourth", "gan_imbalance")
def discriminator_wins(tape: Tape) -> None:
    """The discriminator learns fifty times as fast: its loss is 0 and the generator gets nothing."""
    _adversaries(tape, 5e-5, 5e-3)


# Healthy


@healthy("fourth")
def healthy_adversaries(tape: Tape) -> None:
    """A GAN that circles and gets better."""
    _adversaries(tape, 1e-3, 1e-3)


@healthy("fourth")
def healthy_segments(tape: Tape) -> None:
    """The rare class has a weight in the loss."""
    _segmented(tape, 8.0, 0.05)


@healthy("fourth")
def healthy_annealed(tape: Tape) -> None:
    """The weight of the KL term rises from 0 over 250 steps: the total rises with it."""
    _varied(tape, lambda step: min(1.0, step / 250) * 0.3, ("train/loss", "train/recon_loss", "train/kld"))


@healthy("fourth")
def healthy_average(tape: Tape) -> None:
    """The moving average follows."""
    _denoised(tape, 0.98)


@healthy("fourth")
def healthy_longer_and_longer(tape: Tape) -> None:
    """A curriculum: sequences of 8, 16, 32 and 48 characters, and warm restarts of the rate with each."""
    task = Language(seed=57)
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=3e-3)

    def train(step: int) -> Values:
        length = (8, 16, 32, 48)[step // 80]
        lr = _cosine(step % 80, 80, 3e-3, 10)
        optimizer.param_groups[0]["lr"] = lr
        loss = task.loss(length=length)
        norm = updated(loss, optimizer, 1.0)
        return {"train/loss": loss.detach(), "train/grad_norm": norm, "train/lr": lr, "train/seq_len": length}

    trained(
        tape, 320, train, lambda: {"val/loss": task.evaluated()}, evaluate_every=50, scheduler="cosine_warm_restarts"
    )


@healthy("fourth")
def healthy_resumed(tape: Tape) -> None:
    """Continued at step 5,000 from weights and optimizer of an earlier run, with the end of its schedule."""
    task = Language(seed=58)
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=3e-3)
    for _ in range(200):
        updated(task.loss(), optimizer, 1.0)
    with user_run(tape, lr=3e-3, resume=True, max_steps=5250) as run:
        for step in range(5000, 5250):
            with run.step(step):
                lr = 1.5e-3 * (5250 - step) / 250
                optimizer.param_groups[0]["lr"] = lr
                loss = task.loss()
                norm = updated(loss, optimizer, 1.0)
                run.log({"loss": loss.detach(), "grad_norm": norm, "learning_rate": lr})


@healthy("fourth")
def healthy_contrasted(tape: Tape) -> None:
    """InfoNCE between two views, with a learned temperature."""
    task = Views()
    scale = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.Adam([*task.encoder.parameters(), scale], lr=1e-3)

    def train(step: int) -> Values:
        one, other = (F.normalize(each, dim=1) for each in task.pair())
        scores = one @ other.T * scale.exp()
        loss = F.cross_entropy(scores, torch.arange(64))
        updated(loss, optimizer)
        right = (scores.argmax(1) == torch.arange(64)).float().mean()
        return {"loss": loss.detach(), "top1": right, "temperature": 1 / scale.detach().exp()}

    trained(tape, 500, train, every=2)


@healthy("fourth")
def healthy_distilled(tape: Tape) -> None:
    """A small student learns from a trained teacher: two losses and their agreement."""
    teacher = Digits(perceptron((64, 96, 10)))
    taught = teacher.adam(2e-3)
    for _ in range(300):
        teacher.step(taught)
    task = Digits(perceptron((64, 24, 10)))
    optimizer = task.adam(3e-3)

    def train(step: int) -> Values:
        x, y = next(task.batches)
        with torch.no_grad():
            wanted = teacher.model(x)
        scores = task.model(x)
        soft = F.kl_div((scores / 2).log_softmax(1), (wanted / 2).softmax(1), reduction="batchmean") * 4
        hard = F.cross_entropy(scores, y)
        updated(0.7 * soft + 0.3 * hard, optimizer)
        agreed = (scores.argmax(1) == wanted.argmax(1)).float().mean()
        return {"distill/kd_loss": soft.detach(), "distill/ce_loss": hard.detach(), "distill/agreement": agreed}

    def evaluate() -> Values:
        loss, right = task.evaluated()
        return {"eval/loss": loss, "eval/accuracy": right}

    trained(tape, 500, train, evaluate, alpha=0.7, temperature=2.0)
