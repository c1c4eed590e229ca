"""Loop, rates, data and networks that the trainings of the fifteenth set share."""

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.real.tape import Tape

__all__ = ["F", "nn"]
Values = dict[str, Any]
Rate = Callable[[int], float]
Pair = tuple[torch.Tensor, torch.Tensor]
Told = tuple[torch.Tensor, Values]
"""A loss, and what else is logged with it."""


def drive(tape: Tape, steps: int, act: Callable[[int], Values | None], start: int = 0) -> None:
    """Take steps, and log what each returns."""
    for step in range(start, start + steps):
        with tape.step(step):
            found = act(step)
            if found:
                tape.log({key: float(torch.as_tensor(value).detach()) for key, value in found.items()})


def update(optimizer: Any, loss: torch.Tensor, clip: float = 1e9, rate: float | None = None) -> float:
    """Take a step along a loss, and return the norm of its gradients before they were clipped."""
    if rate is not None:
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
    optimizer.zero_grad()
    loss.backward()
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    norm = float(nn.utils.clip_grad_norm_(weights, clip))
    optimizer.step()
    return norm


class Means:
    """Means of what was added since they were last taken, and the time that passed."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.count = 0
        self.begun = time.perf_counter()

    def add(self, **values: Any) -> None:
        """Add the values of a step."""
        for key, value in values.items():
            self.sums[key] = self.sums.get(key, 0.0) + float(torch.as_tensor(value).detach())
        self.count += 1

    def take(self) -> tuple[dict[str, float], float]:
        """Return the means and the seconds since the last call, and begin anew."""
        found = {key: value / self.count for key, value in self.sums.items()}
        now = time.perf_counter()
        took, self.begun, self.sums, self.count = now - self.begun, now, {}, 0
        return found, took


def fit(
    tape: Tape,
    optimizer: Any,
    loss_of: Callable[[int], Told],
    steps: int,
    rate: Rate,
    names: str,
    clip: float = 1e9,
    every: int = 1,
    check: Callable[[], Values] | None = None,
    check_every: int = 50,
) -> None:
    """Follow a loss; `names` are those of loss, rate and norm (`-` is not logged); `check` evaluates."""
    means, keys = Means(), names.split()

    def act(step: int) -> Values:
        loss, more = loss_of(step)
        norm = update(optimizer, loss, clip, rate(step))
        means.add(**{keys[0]: loss, keys[2]: norm, **more})
        found: Values = {}
        if step % every == every - 1:
            found = {**means.take()[0], keys[1]: rate(step)}
        if check is not None and step % check_every == check_every - 1:
            with torch.no_grad(), tape.span("eval"):
                found |= check()
        found.pop("-", None)
        return found

    drive(tape, steps, act)


def cosine(steps: int, peak: float, warm: int = 0, floor: float = 0.0) -> Rate:
    """Up along a line, then down along half a cosine to a share of the peak."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        part = min(1.0, (step - warm) / max(1, steps - warm))
        return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * part)))

    return rate


def warm(peak: float, steps: int) -> Rate:
    """Up along a line, then level."""
    return lambda step: peak * min(1.0, (step + 1) / steps)


def line(steps: int, peak: float, warm: int = 0) -> Rate:
    """Up along a line, then down along a line to zero."""
    return lambda step: peak * min((step + 1) / max(1, warm), (steps - step) / max(1, steps - warm), 1.0)


def plateau(steps: int, peak: float, warm: int, cool: int) -> Rate:
    """Up, level, and down in the last steps."""
    return lambda step: peak * min(1.0, (step + 1) / warm, max(0.02, (steps - step) / cool))


def stairs(peak: float, *at: int, by: float = 0.1) -> Rate:
    """A rate that is multiplied at each of these steps."""
    return lambda step: float(peak * by ** sum(step >= each for each in at))


def dense(*sizes: int, act: Any = nn.ReLU, drop: float = 0.0) -> Any:
    """A network of layers of these sizes."""
    parts: list[Any] = []
    for given, wanted in itertools.pairwise(sizes):
        parts += [nn.Linear(given, wanted), act(), *([nn.Dropout(drop)] if drop else [])]
    return nn.Sequential(*parts[: -2 if drop else -1])


class Words:
    """Text of words that are drawn by rank; sign 0 is the blank between them."""

    def __init__(self, seed: int, count: int = 60, signs: int = 20) -> None:
        made = torch.Generator().manual_seed(seed)
        sizes = torch.randint(2, 7, (count,), generator=made).tolist()
        self.words = [torch.randint(1, signs, (size,), generator=made) for size in sizes]
        self.shares = 1 / (torch.arange(count) + 3.0)

    def stream(self, count: int) -> torch.Tensor:
        """So many words, one after the other."""
        blank = torch.zeros(1, dtype=torch.long)
        picked = torch.multinomial(self.shares, count, replacement=True).tolist()
        return torch.cat([part for each in picked for part in (self.words[each], blank)])


def pieces(stream: torch.Tensor, count: int, length: int) -> Pair:
    """Pieces from anywhere in a text, and the same one sign later."""
    begin = torch.randint(0, len(stream) - length - 1, (count, 1))
    rows = stream[begin + torch.arange(length + 1)]
    return rows[:, :-1], rows[:, 1:]


class Decoder(nn.Module):  # type: ignore[misc]
    """A small transformer over signs, causal unless said otherwise."""

    def __init__(self, signs: int = 20, width: int = 32, layers: int = 2, causal: bool = True) -> None:
        super().__init__()
        self.signs, self.places = nn.Embedding(signs, width), nn.Embedding(64, width)
        nn.init.normal_(self.signs.weight, 0, 0.3)
        nn.init.normal_(self.places.weight, 0, 0.1)
        settings = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, 2 * width, **settings) for _ in range(layers))
        self.norm, self.head, self.causal = nn.LayerNorm(width), nn.Linear(width, signs), causal

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The scores of each sign at each place."""
        length = rows.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None
        x = self.signs(rows) + self.places.weight[:length]
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=self.causal)
        return self.head(self.norm(x))


def next_sign(model: Any, pair: Pair) -> torch.Tensor:
    """The loss of the next sign; what is below 0 does not count."""
    return F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten(), ignore_index=-100)


def held_out(loss: Callable[[], torch.Tensor], model: Any, times: int = 4) -> float:
    """The mean of a loss in evaluation."""
    model.eval()
    with torch.no_grad():
        total = sum(float(loss()) for _ in range(times))
    model.train()
    return total / times


def stripes(count: int, kinds: int = 6, noise: float = 0.6, wrong: float = 0.0) -> Pair:
    """Pictures of 12 by 12 with waves in one of some directions, and which; a share of the labels is wrong."""
    labels = torch.randint(0, kinds, (count,))
    angle = (labels + 0.15 * torch.randn(count)) * math.pi / kinds
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    along = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
    waves = (along * (1.0 + 0.4 * torch.rand(count, 1, 1)) + 6.3 * torch.rand(count, 1, 1)).sin()
    other = torch.rand(count) < wrong
    labels = torch.where(other, torch.randint(0, kinds, (count,)), labels)
    return (waves + noise * torch.randn(count, 12, 12))[:, None], labels


def eye(kinds: int = 6, width: int = 8, normed: bool = True) -> Any:
    """Two convolutions, a mean over all places, and a layer that decides."""
    norm: Any = nn.BatchNorm2d if normed else nn.Identity
    return nn.Sequential(
        *(nn.Conv2d(1, width, 5, padding=2), norm(width), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), norm(2 * width), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, kinds)),
    )


def right(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of labels that have the highest score."""
    return float((scores.argmax(-1) == labels).float().mean())


def judged(model: Any, pair: Pair) -> tuple[float, float]:
    """Loss and accuracy in evaluation."""
    model.eval()
    with torch.no_grad():
        scores = model(pair[0])
    model.train()
    return float(F.cross_entropy(scores, pair[1])), right(scores, pair[1])


def follow(average: Any, model: Any, keep: float) -> None:
    """Move an average of the weights, and copy what is not a weight."""
    for old, new in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
        old.copy_(old * keep + new.detach() * (1 - keep) if old.is_floating_point() else new)
