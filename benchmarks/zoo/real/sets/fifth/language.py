"""Of the fifth set: language models of characters with rotary positions, tied weights and mixtures of experts."""

import copy
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fifth.tasks import Tensor, cosine, descend, seeded, set_rate, source_code, ticks
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
LENGTH, WIDTH, HEADS, EXPERTS = 40, 48, 4, 6


def rotated(x: Tensor) -> Tensor:
    """Rotary positions for (batch, heads, length, width)."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 1000 ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        (first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos()), dim=-1
    )


class Experts(nn.Module):
    """A mixture of experts of which each character uses one."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.inner = nn.Parameter(0.15 * torch.randn(EXPERTS, WIDTH, WIDTH))
        self.outer = nn.Parameter(0.15 * torch.randn(EXPERTS, WIDTH, WIDTH))
        self.load = torch.zeros(EXPERTS)
        self.balance = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        """Weigh the answer of the chosen expert with its chance."""
        chances = self.router(x).softmax(-1)
        chance, chosen = chances.max(-1)
        mask = F.one_hot(chosen, EXPERTS).float()
        self.load = mask.mean((0, 1))
        self.balance = EXPERTS * (self.load * chances.mean((0, 1))).sum()
        hidden = F.silu(torch.einsum("btw,ewh->bteh", x, self.inner))
        return torch.einsum("bteh,ehw,bte->btw", hidden, self.outer, mask * chance[..., None])


class Layer(nn.Module):
    """Attention and a feed-forward part, normalised before."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList((nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)))
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        plain = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.feed = Experts() if sparse else plain

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        """Attend, then feed forward."""
        parts = self.mix(self.norms[0](x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(rotated(parts[0]), rotated(parts[1]), parts[2], is_causal=causal)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        answer: Tensor = x + self.feed(self.norms[1](x))
        return answer


class Writer(nn.Module):
    """Predicts the next character; the table of characters is also the last layer."""

    def __init__(self, sparse: bool = False, scale: float = 0.05) -> None:
        super().__init__()
        self.table = nn.Embedding(128, WIDTH)
        nn.init.normal_(self.table.weight, std=scale)
        self.layers = nn.ModuleList(Layer(sparse) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, causal: bool = True) -> Tensor:
        """Scores for every next character."""
        x = self.table(x)
        for layer in self.layers:
            x = layer(x, causal)
        scores: Tensor = self.norm(x) @ self.table.weight.T
        return scores

    @property
    def experts(self) -> Experts:
        """The experts of the last layer."""
        found = self.layers[-1].feed  # type: ignore[union-attr]
        assert isinstance(found, Experts)
        return found


def drawn(text: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Pieces of a text and the characters that follow."""
    at = torch.randint(len(text) - LENGTH - 1, (size, 1)) + torch.arange(LENGTH + 1)
    return text[at[:, :-1]], text[at[:, 1:]]


def written(
    tape: Tape,
    *,
    steps: int = 600,
    size: int = 10,
    peak: float = 4e-3,
    rate_at: Callable[[int], float] | None = None,
    model: Writer | None = None,
    open_at: int = 10**9,
    load_at: int = 10**9,
    text_at: Callable[[int, Tensor], Tensor] | None = None,
    balance: float = 0.0,
    every: int = 1,
    clip: float = 1.0,
) -> None:
    """Pre-train; logs loss, norm, rate and tokens, and for experts the load; held-out text every 100 steps."""
    model = model or Writer()
    text = source_code()
    held, text = text[-8000:], text[:-8000]
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.1)
    first: Any = None
    for step in ticks(tape, steps):
        if step == 60:
            first = copy.deepcopy(model.state_dict())
        if step == load_at:
            model.load_state_dict(first)
            optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.1)
        rate = set_rate(optimizer, rate_at(step) if rate_at else cosine(step, steps, peak, least=peak / 10))
        x, y = drawn(text_at(step, text) if text_at else text, size)
        loss = F.cross_entropy(model(x, causal=step < open_at).flatten(0, 1), y.flatten())
        routing = model.experts.balance if isinstance(model.layers[-1].feed, Experts) else None  # type: ignore[union-attr]
        norm = descend(loss if routing is None else loss + balance * routing, optimizer, model, clip)
        values = {"train/loss": loss.item(), "train/grad_norm": norm, "train/learning_rate": rate}
        if routing is not None:
            load = model.experts.load
            share = load.clamp(min=1e-9)
            values |= {"moe/load_max": load.max().item(), "moe/load_entropy": -(share * share.log()).sum().item()}
            values["moe/aux_loss"] = routing.item()
        if step % every == 0:
            tape.log({**values, "train/tokens": (step + 1) * size * LENGTH})
        if step % 100 == 99:
            with tape.span("evaluate"), torch.no_grad():
                x, y = drawn(held, 24)
                tape.log({"eval/loss": F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()})


@fault("fifth", "too_good level_shift generalization_gap overfit divergence", step=400, window=120)
def mask_lost_with_the_backend(tape: Tape) -> None:
    """At step 400 the attention backend changes, and `is_causal` is not passed to it: characters see their answers."""
    seeded(521)
    written(tape, open_at=400)


@fault("fifth", "bad_resume level_shift spike divergence", step=420, window=20)
def oldest_checkpoint_loaded(tape: Tape) -> None:
    """A restart at step 420 loads the newest checkpoint by name, which is that of step 60; a fresh optimizer."""
    seeded(522)
    written(tape, load_at=420)


@fault("fifth", "absurd_loss exploding_gradients not_learning clip_saturated always_clipped")
def tied_table_too_wide(tape: Tape) -> None:
    """The tied table keeps the standard deviation of 1 of `nn.Embedding`, times 4 for "better separation"."""
    seeded(523)
    written(tape, model=Writer(scale=4.0), every=2)


@fault("fifth", "lr_zero lr_schedule plateau", config={"gradient_accumulation_steps": 4, "max_steps": 600})
def schedule_in_micro_batches(tape: Tape) -> None:
    """The schedule is stepped with every one of 4 micro-batches: the rate is 0 after a quarter of the training."""
    seeded(524)
    written(tape, rate_at=lambda step: cosine(4 * step, 600, 4e-3), every=2)


@fault("fifth", "divergence spike not_learning plateau exploding_gradients oscillation level_shift absurd_loss")
def peak_of_another_optimizer(tape: Tape) -> None:
    """Warmup of 200 steps to a rate of 0.3, which was right for SGD; not clipped."""
    seeded(525)
    written(tape, rate_at=lambda step: cosine(step, 600, 0.3, warmup=200), clip=1e9)


@fault("fifth", "level_shift spike divergence", step=350, window=20)
def shard_of_another_tokenizer(tape: Tape) -> None:
    """From step 350 on, half of the batches come from a shard whose numbers belong to another vocabulary."""
    seeded(526)
    order = torch.randperm(128)
    written(tape, text_at=lambda step, text: order[text] if step >= 350 and step % 2 else text)


@fault("fifth", "moe_imbalance entropy_collapse")
def router_without_balance(tape: Tape) -> None:
    """The balance loss is left out and the router starts with a preference: nearly all go to one expert."""
    seeded(527)
    model = Writer(sparse=True)
    for layer in model.layers:
        with torch.no_grad():
            layer.feed.router.weight.mul_(4)  # type: ignore[union-attr]
            layer.norms[1].bias.copy_(layer.feed.router.weight[0])  # type: ignore[union-attr, index]
    written(tape, model=model, steps=450)


@healthy("fifth", config={"per_device_train_batch_size": 4, "scheduler": "cosine"})
def healthy_few_sequences(tape: Tape) -> None:
    """Four sequences in a batch, cosine to a tenth: a noisy loss."""
    seeded(531)
    written(tape, steps=900, size=4, peak=3e-3)


def stable_then_down(step: int) -> float:
    """Warmup, a constant rate, and a linear decay in the last fifth."""
    return 3e-3 * min(1.0, (step + 1) / 50, (600 - step) / 120)


@healthy("fifth", config={"scheduler": "wsd", "router_aux_loss_coef": 0.02})
def healthy_balanced_experts(tape: Tape) -> None:
    """A mixture of experts with a balance loss, and a schedule of warmup, plateau and decay."""
    seeded(532)
    written(tape, model=Writer(sparse=True), rate_at=stable_then_down, balance=0.02)


def annealed(step: int, text: Tensor) -> Tensor:
    """A mixture of code and of its comments and messages alone, which get more between steps 250 and 450."""
    share = 0.2 + 0.5 * min(1.0, max(0.0, (step - 250) / 200))
    return text[:30_000] if float(torch.rand(())) < share else text[30_000:]


@healthy("fifth", config={"data": "mixture annealed"})
def healthy_mixture_annealed(tape: Tape) -> None:
    """The share of one of two sources of text rises during the training; logged every five steps."""
    seeded(533)
    written(tape, steps=700, size=6, text_at=annealed, every=5)
