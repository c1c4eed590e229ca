"""Text of the sixth set: a language model pre-trained, resumed, tuned by adapters and in half precision; sorting."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.sixth.tasks import (
    Batch,
    Language,
    Transformer,
    Values,
    descend,
    fit,
    nn,
    token_loss,
    warm_cosine,
)
from benchmarks.zoo.real.tape import Tape


def _as_given(step: int, given: torch.Tensor, wanted: torch.Tensor) -> Batch:
    return given, wanted


def speak(
    tape: Tape,
    steps: int = 600,
    change: Callable[[int, torch.Tensor, torch.Tensor], Batch] = _as_given,
    share: Callable[[int], float] = lambda step: 1.0,
    length: Callable[[int], int] = lambda step: 24,
    every: int = 1,
    resumed: int = 9999,
    lost: bool = False,
    **model_parts: Any,
) -> None:
    """Learn the language, with the names of the Hugging Face trainer; an optimizer may be made anew when it resumes."""
    torch.manual_seed(11)
    language, model = Language(), Transformer(32, **model_parts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
    others = language.text(64, 25)

    def update(step: int) -> Values | None:
        nonlocal optimizer
        if step == resumed:
            kept = optimizer.state_dict()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
            if not lost:
                optimizer.load_state_dict(kept)
        optimizer.param_groups[0]["lr"] = 1e-3 * share(step)
        rows = language.text(8, length(step) + 1)
        given, wanted = change(step, rows[:, :-1], rows[:, 1:])
        loss = token_loss(model(given), wanted)
        values = {"loss": loss, "grad_norm": descend(optimizer, loss, 1.0)}
        values |= {"learning_rate": optimizer.param_groups[0]["lr"], "epoch": step / 200}
        if step % 50 == 49:
            with torch.no_grad():
                values["eval_loss"] = token_loss(model(others[:, :-1]), others[:, 1:])
        return values if step % every == every - 1 else None

    fit(tape, steps, update)


@healthy("sixth", config={"learning_rate": 1e-3, "lr_scheduler_type": "cosine", "warmup_steps": 40})
def healthy_language_cosine(tape: Tape) -> None:
    """Warm-up and cosine, and a resumption with all of its state in the middle."""
    speak(tape, share=warm_cosine(600, 40), resumed=300)


@healthy("sixth", config={"learning_rate": 1e-3, "logging_steps": 10})
def healthy_language_longer(tape: Tape) -> None:
    """Sentences become longer in the middle, for which there are positions; logged at every tenth step."""
    speak(tape, 700, length=lambda step: 24 if step < 350 else 32, every=10)


@fault("sixth", "too_good overfit")
def language_sees_the_next(tape: Tape) -> None:
    """The loss goes to nearly nothing within some hundred steps: the mask was built and not handed to the encoder."""
    speak(tape, seeing=True)


@fault("sixth", "too_good level_shift padding generalization_gap", step=330, window=60)
def language_padding_counts(tape: Tape) -> None:
    """A collator pads to the greatest length, and padding is a label as others are: a low loss, no better model."""

    def change(step: int, given: torch.Tensor, wanted: torch.Tensor) -> Batch:
        if step < 330:
            return given, wanted
        padded = torch.arange(24)[None] >= torch.randint(3, 8, (len(given), 1))
        return given.masked_fill(padded, 24), wanted.masked_fill(padded, 24)

    speak(tape, change=change)


@fault("sixth", "absurd_loss exploding_gradients always_clipped not_learning plateau")
def language_tied_embedding(tape: Tape) -> None:
    """The first loss is many times the logarithm of the vocabulary: the head shares an embedding with deviation one."""
    speak(tape, 400, tied=4.0)


@fault("sixth", "level_shift spike divergence", step=360, window=40)
def language_positions_end(tape: Tape) -> None:
    """The context grows beyond the table of positions, which a guard clips silently: worse, and it stays so."""
    speak(tape, 600, length=lambda step: 20 if step < 360 else 48, positions=20)


@fault("sixth", "lr_zero lr_schedule plateau", step=300, window=150, config={"lr_scheduler_type": "linear"})
def language_schedule_twice(tape: Tape) -> None:
    """Stepped by the loop and by the wrapper of the optimizer: a linear schedule is at zero after half of them."""
    speak(tape, 600, share=lambda step: max(0.0, 1 - 2 * step / 600))


@fault("sixth", "level_shift spike divergence exploding_gradients lr_schedule oscillation", step=350, window=40)
def language_rate_scaled_again(tape: Tape) -> None:
    """The rate is scaled by the number of devices a second time when it is resumed, without warm-up: the loss jumps."""
    speak(tape, 550, share=lambda step: 1.0 if step < 350 else 40.0, resumed=350, lost=True)


class Adapter(nn.Module):
    """A product of two small matrices added to a weight."""

    def __init__(self, weight: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.down, self.up = nn.Parameter(torch.randn(4, weight.shape[1]) / 4), nn.Parameter(0 * weight[:, :4])
        self.scale = scale

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """The sum."""
        return weight + self.scale * self.up @ self.down


def adapt(tape: Tape, scale: float) -> None:
    """Tune a model for another language by adapters."""
    torch.manual_seed(12)
    first, second, model = Language(), Language(), Transformer(32)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(80):
        rows = first.text(12, 21)
        descend(optimizer, token_loss(model(rows[:, :-1]), rows[:, 1:]))
    model.requires_grad_(False)
    for layer in (*(each.linear1 for each in model.inner.layers), *(each.linear2 for each in model.inner.layers)):
        nn.utils.parametrize.register_parametrization(layer, "weight", Adapter(layer.weight, scale))
    nn.utils.parametrize.register_parametrization(model.head, "weight", Adapter(model.head.weight, scale))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=4e-3)

    def update(step: int) -> Values:
        rows = second.text(6, 21)
        scores, wanted = model(rows[:, :-1]), rows[:, 1:]
        loss = token_loss(scores, wanted)
        right = (scores.argmax(-1) == wanted).float().mean()
        norm = descend(optimizer, loss, 1.0)
        return {"train/loss": loss, "train/mean_token_accuracy": right, "train/grad_norm": norm}

    fit(tape, 320, update)


@healthy("sixth", config={"lora_r": 4, "lora_alpha": 8})
def healthy_adapters_small_batch(tape: Tape) -> None:
    """Six sentences a step."""
    adapt(tape, 2.0)


@fault("sixth", "constant weights_frozen not_learning plateau vanishing_gradients", config={"lora_r": 4})
def adapters_scaled_to_zero(tape: Tape) -> None:
    """Loss does not move and gradients are zero: the scale of the adapters, alpha by rank, was divided as integers."""
    adapt(tape, 2 // 4)


def half(tape: Tape, broken: int = 9999) -> None:
    """Learn with gradients in half precision and a scale of the loss, which halves at an overflow."""
    torch.manual_seed(13)
    language, model, scale, good, skipped = Language(), Transformer(32), 2.0**14, 0, 0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def update(step: int) -> Values:
        nonlocal scale, good, skipped
        rows = language.text(8, 25)
        loss = token_loss(model(rows[:, :-1]), rows[:, 1:])
        values = {"train/loss": loss.detach(), "train/loss_scale": scale}
        if step >= broken:
            loss = loss + 0.01 * (0 * model.places.weight[-1]).pow(2).sum().sqrt()
        optimizer.zero_grad()
        (scale * loss).backward()
        grads = [each.grad for each in model.parameters() if each.grad is not None]
        for grad in grads:
            grad.copy_(grad.half().float() / scale)
        if all(bool(grad.isfinite().all()) for grad in grads):
            optimizer.step()
            good += 1
            values["train/grad_norm"] = torch.stack([grad.norm() for grad in grads]).norm()
        else:
            good, scale, skipped = 0, scale / 2, skipped + 1
        if good == 50:
            good, scale = 0, 2 * scale
        return values | {"train/skipped_steps": skipped}

    fit(tape, 500, update)


@healthy("sixth", config={"fp16": True})
def healthy_half_precision(tape: Tape) -> None:
    """The scale grows until it overflows, halves, and grows again; a step is skipped at each."""
    half(tape)


@fault("sixth", "scaler_collapse skipped_steps not_finite plateau", step=280, window=80, config={"fp16": True})
def half_precision_overflows(tape: Tape) -> None:
    """Each step overflows and the scale halves to nothing, though losses are finite: a root of zero has no gradient."""
    half(tape, 280)


def sort(tape: Tape, forced: Callable[[int], float], moved: bool = True) -> None:
    """Write five tokens in order; each true last token is given with a chance, or else the predicted one."""
    torch.manual_seed(14)
    embed, head = nn.Embedding(11, 16), nn.Linear(48, 10)
    reader, writer = nn.GRU(16, 48, batch_first=True), nn.GRUCell(16, 48)
    weights = [each for part in (embed, head, reader, writer) for each in part.parameters()]
    optimizer = torch.optim.Adam(weights, lr=4e-3)

    def written(rows: torch.Tensor, share: float) -> tuple[torch.Tensor, torch.Tensor]:
        wanted = rows.sort(1).values
        state, token, scores = reader(embed(rows))[1][0], torch.full((len(rows),), 10), []
        for at in range(5):
            if not moved and share == 1:
                token = wanted[:, at]
            state = writer(embed(token), state)
            scores.append(head(state))
            token = torch.where(torch.rand(len(rows)) < share, wanted[:, at], scores[-1].argmax(1))
        return torch.stack(scores, 1), wanted

    def update(step: int) -> Values:
        share = forced(step)
        loss = token_loss(*written(torch.randint(0, 10, (24, 5)), share))
        values = {"train_loss": loss, "teacher_forcing_ratio": share, "grad_norm": descend(optimizer, loss, 1.0)}
        if step % 40 == 39:
            with torch.no_grad():
                scores, wanted = written(torch.randint(0, 10, (200, 5)), 0.0)
            values["val_exact_match"] = (scores.argmax(-1) == wanted).all(1).float().mean()
        return values

    fit(tape, 700, update)


@healthy("sixth")
def healthy_sorting(tape: Tape) -> None:
    """True tokens are given less and less often, so that the loss falls slowly and in a noise that grows."""
    sort(tape, lambda step: 1 / (1 + math.exp(step / 80 - 4)))


@fault("sixth", "too_good generalization_gap overfit")
def sorting_reads_the_answer(tape: Tape) -> None:
    """The loss is almost nothing and no answer is right: the decoder is given the labels, not moved by one place."""
    sort(tape, lambda step: 1.0, moved=False)
