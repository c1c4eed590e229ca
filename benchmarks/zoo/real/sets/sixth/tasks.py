"""Tasks and networks of the sixth set: its loop, striped images, utterances, and a language with a clock."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
Batch = tuple[torch.Tensor, torch.Tensor]
Values = dict[str, Any]


def fit(tape: Tape, steps: int, update: Callable[[int], Values | None], first: int = 0) -> None:
    """Train for so many steps, and log what each of them returns."""
    for step in range(first, first + steps):
        with tape.step(step):
            values = update(step)
            if values:
                tape.log({name: float(torch.as_tensor(value).detach()) for name, value in values.items()})


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor, clip: float = math.inf) -> torch.Tensor:
    """Make an update and return the norm of the gradients, before they are clipped."""
    optimizer.zero_grad()
    loss.backward()
    weights = [each for group in optimizer.param_groups for each in group["params"]]
    norm = nn.utils.clip_grad_norm_(weights, clip)
    optimizer.step()
    return norm


def layers(*sizes: int, between: Callable[[], Any] = nn.ReLU) -> Any:
    """Linear layers with an activation between each two."""
    parts: list[Any] = []
    for given, wanted in itertools.pairwise(sizes):
        parts += [nn.Linear(given, wanted), between()]
    return nn.Sequential(*parts[:-1])


def stripes(count: int, noise: float = 0.25) -> Batch:
    """Images of 12 by 12 points between about 0 and 1, with stripes in one of six directions."""
    labels = torch.randint(0, 6, (count,))
    angles = labels * math.pi / 6 + 0.12 * torch.randn(count)
    rows, columns = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    along = columns * angles.cos()[:, None, None] + rows * angles.sin()[:, None, None]
    turns = (0.16 + 0.08 * torch.rand(count))[:, None, None]
    waves = (2 * math.pi * (turns * along + torch.rand(count)[:, None, None])).cos()
    return (0.5 + 0.2 * waves + noise * torch.randn(count, 12, 12))[:, None], labels


def normalised(images: torch.Tensor) -> torch.Tensor:
    """Images with a mean of zero and a deviation of about one."""
    return (images - 0.5) / 0.28


def convolutions(outputs: int = 6, norm: bool = False) -> Any:
    """Two convolutions and a linear layer, for images of 12 by 12 points."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), *([nn.BatchNorm2d(8)] if norm else []), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), *([nn.BatchNorm2d(16)] if norm else []), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(144, outputs),
    )  # fmt: skip


def blobs(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images of 16 by 16 points with one ellipse each: the images, masks, boxes (centre and size), and kinds."""
    kinds = torch.randint(0, 3, (count,))
    centre, radius = 4 + 8 * torch.rand(count, 2), 1.5 + 2 * torch.rand(count, 2)
    rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    away = ((columns - centre[:, :1, None]) / radius[:, :1, None]) ** 2
    masks = (away + ((rows - centre[:, 1:, None]) / radius[:, 1:, None]) ** 2 < 1).float()
    bright = (0.6 + 0.5 * kinds)[:, None, None] * masks
    images = (bright + 0.35 * torch.randn(count, 16, 16))[:, None]
    return images, masks[:, None], torch.cat([centre, 2 * radius], 1) / 16, kinds


def utterances(count: int, templates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Frames of 2 to 4 for each of 3 to 6 phones: the frames, phones (1 to 8), and the lengths of both."""
    lengths = torch.randint(3, 7, (count,))
    phones, frames, spoken = torch.zeros(count, 6, dtype=torch.long), torch.zeros(count, 26, 12), []
    for row, length in enumerate(lengths.tolist()):
        phones[row, :length] = torch.randint(1, 9, (length,))
        held = torch.cat([torch.full((int(torch.randint(2, 5, ())),), int(each)) for each in phones[row, :length]])
        frames[row, : len(held)] = templates[held - 1]
        spoken.append(min(len(held), 26))
    return frames + 0.5 * torch.randn(count, 26, 12), phones, torch.tensor(spoken), lengths


class Language:
    """A language of 24 tokens: the position says the token at each even one, the last token that at each odd one."""

    def __init__(self) -> None:
        self.clock = torch.randint(0, 12, (64,))
        self.next = torch.distributions.Dirichlet(torch.full((24, 12), 0.25)).sample()

    def text(self, count: int, length: int) -> torch.Tensor:
        """Sentences of which each begins at the start of the clock; one token in twelve is arbitrary."""
        rows = torch.zeros(count, length, dtype=torch.long)
        for at in range(length):
            if at % 2 == 0:
                rows[:, at] = self.clock[at]
            else:
                rows[:, at] = 12 + torch.multinomial(self.next[rows[:, at - 1]], 1)[:, 0]
            odd = torch.rand(count) < 1 / 12
            rows[odd, at] = torch.randint(0, 24, (int(odd.sum()),))
        return rows


class Transformer(nn.Module):
    """Two layers of attention over tokens and their positions; it may see what is to come, or share its embedding."""

    def __init__(self, width: int = 48, positions: int = 64, seeing: bool = False, tied: float = 0.0) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(26, width), nn.Embedding(positions, width)
        one = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.inner = nn.TransformerEncoder(one, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 26, bias=False)
        self.seeing = seeing
        if tied:
            self.head.weight = self.tokens.weight
            nn.init.normal_(self.tokens.weight, std=tied)

    def forward(self, rows: torch.Tensor) -> Any:
        """Scores of the next tokens; positions behind the last known one count as that one."""
        length = rows.shape[1]
        places = torch.arange(length).clamp_max(self.places.num_embeddings - 1)
        ahead = None if self.seeing else torch.full((length, length), -math.inf).triu(1)
        return self.head(self.inner(self.tokens(rows) + self.places(places), ahead))


def token_loss(scores: torch.Tensor, wanted: torch.Tensor, ignored: int = -100) -> torch.Tensor:
    """Cross entropy of all tokens but the ignored one."""
    return F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=ignored)


def warm_cosine(steps: int, warm: int) -> Callable[[int], float]:
    """A rate that warms up and then falls as a cosine."""

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))

    return share
