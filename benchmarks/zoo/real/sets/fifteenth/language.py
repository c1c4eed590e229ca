"""Language models: pretraining, fine-tuning, distillation, experts; each in the names of a trainer."""

import copy
import time

import torch

from benchmarks.zoo.real.case import healthy
from benchmarks.zoo.real.sets.fifteenth.tasks import (
    Decoder,
    F,
    Means,
    Told,
    Values,
    Words,
    cosine,
    drive,
    fit,
    held_out,
    line,
    next_sign,
    nn,
    pieces,
    plateau,
    update,
    warm,
)
from benchmarks.zoo.real.tape import Tape


@healthy(
    "fifteenth",
    {"model.flavor": "debug", "optimizer.name": "AdamW", "optimizer.lr": 3e-3, "training.steps": 400},
)
def titan_logged_each_tenth(tape: Tape) -> None:
    """Pretraining that logs each tenth step."""
    torch.manual_seed(1501)
    text, model, means = Words(1).stream(9000), Decoder(), Means()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    rate = cosine(400, 3e-3, 40, 0.1)

    def act(step: int) -> Values | None:
        pair = pieces(text, 8, 32)
        losses = F.cross_entropy(model(pair[0]).transpose(1, 2), pair[1], reduction="none").mean(1)
        norm = update(optimizer, losses.mean(), 1.0, rate(step))
        means.add(loss=losses.mean().detach(), worst=losses.view(4, 2).mean(1).max().detach())
        if (step + 1) % 10:
            return None
        found, took = means.take()
        return {
            "loss_metrics/global_avg_loss": found["loss"],
            "loss_metrics/global_max_loss": found["worst"],
            "grad_norm": norm,
            "lr": rate(step),
            "n_tokens_seen": 256 * (step + 1),
            "throughput(tps)": 2560 / took,
            "time_metrics/end_to_end(s)": took / 10,
        }

    drive(tape, 400, act)


@healthy("fifteenth", {"dataset": "words", "n_layer": 1, "batch_size": 12, "block_size": 24, "learning_rate": 2e-3})
def nanogpt_evaluation_inside(tape: Tape) -> None:
    """Each 25th step evaluates on both texts and writes a checkpoint before it learns."""
    torch.manual_seed(1502)
    text, other, model = Words(2).stream(9000), Words(2).stream(3000), Decoder(layers=1)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99))
    rate = cosine(500, 2e-3, 50, 0.1)

    def estimate(part: torch.Tensor) -> float:
        return held_out(lambda: next_sign(model, pieces(part, 24, 24)), model, 8)

    def act(step: int) -> Values | None:
        found: Values | None = None
        if step % 25 == 0:
            with tape.span("evaluate"):
                own, new = estimate(text), estimate(other)
            found = {"iter": step, "train/loss": own, "val/loss": new, "lr": rate(step)}
            with tape.span("checkpoint"):
                copy.deepcopy(model.state_dict())
        update(optimizer, next_sign(model, pieces(text, 12, 24)), 1.0, rate(step))
        return found

    drive(tape, 501, act)


def orthogonal(x: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with singular values of about one, by Newton's and Schulz's steps."""
    x = x / (x.norm() + 1e-7)
    for _ in range(4):
        part = x @ x.T
        x = 3.4445 * x + (-4.775 * part + 2.0315 * part @ part) @ x
    return x


@healthy("fifteenth", {"depth": 2, "matrix_lr": 0.02, "embedding_lr": 0.01, "warmdown_ratio": 0.4})
def nanochat_warmdown(tape: Tape) -> None:
    """Matrices with orthogonal steps, the rest with Adam; level rate, then a long way down; the loss is smoothed."""
    torch.manual_seed(1503)
    text, other, model = Words(3).stream(9000), Words(3).stream(3000), Decoder()
    matrices = [weight for weight in model.blocks.parameters() if weight.ndim == 2]
    kept = {id(weight) for weight in matrices}
    adam = torch.optim.AdamW([weight for weight in model.parameters() if id(weight) not in kept])
    moments = [torch.zeros_like(weight) for weight in matrices]
    smooth, begun = 0.0, time.perf_counter()

    def act(step: int) -> Values:
        nonlocal smooth, begun
        share = plateau(350, 1.0, 1, 140)(step)
        loss = next_sign(model, pieces(text, 8, 32))
        model.zero_grad()
        update(adam, loss, 1e9, 0.01 * share)
        with torch.no_grad():
            for weight, moment in zip(matrices, moments, strict=True):
                moment.mul_(0.95).add_(weight.grad)
                weight.sub_(0.02 * share * orthogonal(moment) * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5)
        smooth = 0.9 * smooth + 0.1 * loss.item()
        took, begun = time.perf_counter() - begun, time.perf_counter()
        found = {
            "step": step,
            "train/loss": smooth / (1 - 0.9 ** (step + 1)),
            "train/lrm": share,
            "train/dt": took,
            "train/tok_per_sec": 256 / took,
        }
        if step % 50 == 49:
            with tape.span("val_bpb"):
                found["val/bpb"] = held_out(lambda: next_sign(model, pieces(other, 32, 32)), model) / 0.6931
        return found

    drive(tape, 350, act)


@healthy("fifteenth", {"lr": 2e-3, "fp16": True, "initial-loss-scale": 65536, "rampup-batch-size": [4, 4, 1200]})
def megatron_half_precision(tape: Tape) -> None:
    """Half precision: the loss scale doubles each 60 steps and halves where it overflows; the batch grows."""
    torch.manual_seed(1504)
    text, model = Words(4).stream(9000), Decoder(layers=1)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.95))
    rate, scale, good, taken = line(360, 2e-3, 30), 65536.0, 0, 0
    size = 4

    def act(step: int) -> Values:
        nonlocal scale, good, taken, size
        size = 4 + 4 * min(3, step // 60)
        loss = next_sign(model, pieces(text, size, 32))
        optimizer.zero_grad()
        (loss * scale).backward()
        fits = all(weight.grad.half().isfinite().all() for weight in model.parameters())
        found = {"lm loss": loss, "learning-rate": rate(step), "loss-scale": scale, "batch-size": size}
        if not fits:
            scale, good = scale / 2, 0
            return {**found, "skipped-train-samples": size}
        for weight in model.parameters():
            weight.grad.copy_(weight.grad.half().float() / scale)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
        taken, good = taken + size, good + 1
        if good == 60:
            scale, good = scale * 2, 0
        params = torch.cat([weight.detach().flatten() for weight in model.parameters()]).norm()
        return {**found, "grad-norm": norm, "params-norm": params}

    drive(tape, 360, act)


@healthy(
    "fifteenth",
    {"model_name_or_path": "base", "learning_rate": 3e-4, "lr_scheduler_type": "linear", "logging_steps": 5},
)
def sft_from_good_weights(tape: Tape) -> None:
    """Fine-tuning of a good model on answers of many lengths, of which some signs count; the loss falls a little."""
    torch.manual_seed(1505)
    base, model, means = Words(5), Decoder(), Means()
    text = base.stream(8000)
    first = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(220):
        update(first, next_sign(model, pieces(text, 8, 32)), 1.0)
    base.shares = base.shares.flip(0)
    text, other = base.stream(4000), base.stream(1500)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
    rate, seen = line(300, 3e-4, 9), 0

    def answers(text: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows, wanted = pieces(text, count, 32)
        ends = torch.randint(10, 33, (count, 1))
        place = torch.arange(32)
        return rows, torch.where((place < 4) | (place >= ends), -100, wanted)

    def act(step: int) -> Values | None:
        nonlocal seen
        rows, wanted = answers(text, 6)
        scores = model(rows)
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        norm = update(optimizer, loss, 1.0, rate(step))
        mask = wanted >= 0
        seen += int(mask.sum())
        log = scores.detach().log_softmax(-1)[mask]
        exact = (log.argmax(-1) == wanted[mask]).float().mean()
        means.add(
            loss=loss.detach(), grad_norm=norm, entropy=-(log.exp() * log).sum(-1).mean(), mean_token_accuracy=exact
        )
        found: Values = {}
        if step % 5 == 4:
            found = {**means.take()[0], "learning_rate": rate(step), "num_tokens": seen, "epoch": (step + 1) / 100}
        if step % 100 == 99:
            found["eval_loss"] = held_out(lambda: next_sign(model, answers(other, 32)), model)
        return found

    drive(tape, 300, act)


@healthy("fifteenth", {"task": "masked_lm", "arch": "tiny", "lr": [3e-3], "lr_scheduler": "inverse_sqrt"})
def fairseq_masked_words(tape: Tape) -> None:
    """Signs hidden in a text; inverse square root; the first steps stay at what the frequencies give."""
    torch.manual_seed(1506)
    words, means = Words(6, 14), Means()
    text = words.stream(9000)
    model = Decoder(signs=21, causal=False)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))

    def act(step: int) -> Values | None:
        rate = 3e-3 * min((step + 1) / 80, (80 / (step + 1)) ** 0.5)
        rows, _ = pieces(text, 12, 24)
        hidden = torch.rand(rows.shape) < 0.15
        loss = next_sign(model, (torch.where(hidden, 20, rows), torch.where(hidden, rows, -100)))
        norm = update(optimizer, loss, 2.0, rate)
        means.add(loss=loss.detach() / 0.6931, gnorm=norm, clip=100.0 * (norm > 2.0))
        if step % 10 != 9:
            return None
        found, took = means.take()
        shown = {f"train_inner/{key}": value for key, value in found.items()}
        return {
            **shown,
            "train_inner/ppl": 2 ** found["loss"],
            "train_inner/wps": 2880 / took,
            "train_inner/ups": 10 / took,
            "train_inner/lr": rate,
            "train_inner/num_updates": step + 1,
        }

    drive(tape, 600, act)


@healthy("fifteenth", {"lr": 2e-3, "batch_tokens": 384, "curriculum": [8, 16, 32, 48]})
def longer_and_longer(tape: Tape) -> None:
    """Rows of 8, 16, 32 and 48 signs, one after the other: the batch has as many signs as before; each is told."""
    torch.manual_seed(1507)
    text, other, model, length = Words(7).stream(9000), Words(7).stream(3000), Decoder(), 8

    def loss_of(step: int) -> Told:
        nonlocal length
        length = (8, 16, 32, 48)[step // 90]
        return next_sign(model, pieces(text, 384 // length, length)), {"stage": step // 90, "seq_len": length}

    def check() -> Values:
        return {"val_loss": held_out(lambda: next_sign(model, pieces(other, 1536 // length, length)), model)}

    optimizer = torch.optim.AdamW(model.parameters())
    fit(tape, optimizer, loss_of, 360, warm(2e-3, 30), "loss - grad_norm", 1.0, check=check, check_every=30)


@healthy("fifteenth", {"temperature": 2.0, "alpha_ce": 0.3, "teacher": "tiny-2x32", "learning_rate": 4e-3})
def distilled_half(tape: Tape) -> None:
    """A student of one layer learns from a teacher of two, and from the text."""
    torch.manual_seed(1508)
    text, teacher, model = Words(8).stream(9000), Decoder(), Decoder(width=16, layers=1)
    first = torch.optim.AdamW(teacher.parameters(), 3e-3)
    for _ in range(220):
        update(first, next_sign(teacher, pieces(text, 8, 32)), 1.0)

    def loss_of(step: int) -> Told:
        rows, wanted = pieces(text, 8, 32)
        with torch.no_grad():
            soft = (teacher(rows) / 2).softmax(-1)
        scores = model(rows)
        apart = F.kl_div((scores / 2).log_softmax(-1).flatten(0, 1), soft.flatten(0, 1), reduction="batchmean") * 4
        hard = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        return 0.7 * apart + 0.3 * hard, {"train/kd_loss": apart, "train/ce_loss": hard}

    names = "train/loss train/learning_rate train/grad_norm"
    fit(tape, torch.optim.AdamW(model.parameters()), loss_of, 300, line(300, 4e-3, 15), names, 5.0)


class Experts(nn.Module):  # type: ignore[misc]
    """A decoder whose last part sends each sign to one of four networks."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.route = Decoder(layers=1), nn.Linear(32, 4, bias=False)
        self.body.head = nn.Identity()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4))
        self.head = nn.Linear(32, 20)

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Scores, how uneven the load is (1 where it is even), and the size of what the router says."""
        x = self.body(rows).flatten(0, 1)
        said = self.route(x)
        shares = said.softmax(-1)
        best, which = shares.max(-1)
        mixed = torch.stack([net(x) for net in self.nets], 1)[torch.arange(len(x)), which]
        load = F.one_hot(which, 4).float().mean(0)
        return (
            self.head(x + best[:, None] * mixed),
            4 * (load * shares.mean(0)).sum(),
            said.logsumexp(-1).square().mean(),
        )


@healthy("fifteenth", {"num-experts": 4, "moe-router-topk": 1, "moe-aux-loss-coeff": 2e-2, "lr": 2e-3})
def megatron_four_experts(tape: Tape) -> None:
    """Four experts with an even load from a loss at the side."""
    torch.manual_seed(1509)
    text, model = Words(9).stream(9000), Experts()

    def loss_of(step: int) -> Told:
        rows, wanted = pieces(text, 8, 32)
        scores, uneven, size = model(rows)
        loss = F.cross_entropy(scores, wanted.flatten())
        own = {"lm loss": loss, "load_balancing_loss": uneven, "z_loss": size}
        return loss + 0.02 * uneven + 1e-2 * size, own

    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.95))
    fit(tape, optimizer, loss_of, 320, cosine(320, 2e-3, 20, 0.1), "- learning-rate grad-norm", 1.0)
