"""Characters, a translation, speech and tags, logged as nanoGPT, the Trainer, torchtitan, fairseq and spaCy do."""

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.eighth.tasks import SIGNS, Rate, Writer, cosine, spoken, sums, windows
from benchmarks.zoo.real.sets.seventh.tasks import F, Pair, Values, drive, learn, nn, set_rate, share_right
from benchmarks.zoo.real.tape import Tape


def scored(model: Any, given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the characters that follow."""
    return F.cross_entropy(model(given).flatten(0, 1), wanted.flatten())


def babble(tape: Tape, steps: int = 400, few_from: int | None = None) -> None:
    """Learn sums character by character, as nanoGPT logs it; from a step on windows begin at a few places only."""
    torch.manual_seed(41)
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    text, others = sums(4000), sums(500)
    rate = cosine(steps, 0.005, warm=20, floor=0.0005)
    begun = time.perf_counter()

    def mean_loss(rows: torch.Tensor, count: int) -> float:
        with tape.span("evaluate"), torch.no_grad():
            return (
                sum(float(scored(model, *windows(rows, torch.randint(0, len(rows) - 31, (16,))))) for _ in range(count))
                / count
            )

    def act(step: int) -> Values:
        nonlocal begun
        now = set_rate(optimizer, rate(step))
        last = 12 if few_from is not None and step >= few_from else len(text) - 31
        loss = scored(model, *windows(text, torch.randint(0, last, (16,))))
        learn(optimizer, loss, 1.0)
        took, begun = time.perf_counter() - begun, time.perf_counter()
        values: Values = {"iter": step, "train/loss": loss, "lr": now, "mfu": 0.04 / took} if step % 2 == 0 else {}
        if step % 40 == 39:
            values["val/loss"] = mean_loss(others, 12)
        return values

    drive(tape, steps, act)


@healthy("eighth")
def healthy_nanogpt_with_evaluation(tape: Tape) -> None:
    """A small model of characters, whose evaluation takes as long as a dozen steps, each fortieth step."""
    babble(tape)


@fault("eighth", "overfit too_good stuck_batch level_shift generalization_gap divergence", step=200, window=60)
def nanogpt_index_of_few_windows(tape: Tape) -> None:
    """The length of a new shard was read as that of its header: all windows begin at its first dozen characters."""
    babble(tape, steps=440, few_from=200)


def tune(tape: Tape, steps: int, same_from: int | None = None, few: int = 2000, rate: float = 0.004) -> None:
    """Tune a model as the Trainer logs it, every tenth step; from a step on labels are not moved on by one."""
    torch.manual_seed(42)
    model = Writer(blocks=2)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    text, others = sums(few), sums(200)
    kept: list[float] = []
    order: list[torch.Tensor] = []

    def act(step: int) -> Values:
        same = same_from is not None and step >= same_from
        if not order:
            order.extend((torch.randperm((len(text) - 31) // 10) * 10).split(16))
        now = set_rate(optimizer, rate * (1 - step / steps))
        given, wanted = windows(text, order.pop())
        loss = scored(model, given, given if same else wanted)
        norm = learn(optimizer, loss, 1.0)
        kept.append(float(loss.detach()))
        values: Values = {}
        if step % 10 == 9:
            values = {"train/loss": sum(kept) / len(kept), "train/grad_norm": norm, "train/learning_rate": now}
            values["train/epoch"] = step * 160 / len(text)
            kept.clear()
        if step % 50 == 49:
            with torch.no_grad():
                given, wanted = windows(others, torch.arange(0, 1960, 30))
                values["eval/loss"] = scored(model, given, given if same else wanted)
        return values

    drive(tape, steps, act)


@healthy("eighth")
def healthy_trainer_in_epochs(tape: Tape) -> None:
    """Six passes over a small set with a linear decay; training sinks below evaluation by little, with no harm yet."""
    tune(tape, 500, few=1300, rate=0.003)


@fault("eighth", "too_good level_shift spike divergence", step=250, window=40)
def trainer_labels_not_shifted(tape: Tape) -> None:
    """Since the collator was rewritten neither it nor the model shifts the labels: each character is to be copied."""
    tune(tape, 450, same_from=250)


def pretrain(tape: Tape, steps: int, wait: Callable[[int], float]) -> None:
    """Learn sums as torchtitan logs it, each fifth step; `wait` says how long the loader takes for a batch."""
    torch.manual_seed(43)
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters())
    text = sums(4000)
    rate = cosine(steps, 0.004, warm=40)
    begun = time.perf_counter()
    loading = 0.0

    def act(step: int) -> Values:
        nonlocal begun, loading
        with tape.span("data"):
            asked = time.perf_counter()
            rows = windows(text, torch.randint(0, len(text) - 31, (16,)))
            time.sleep(wait(step))
            loading += time.perf_counter() - asked
        now = set_rate(optimizer, rate(step))
        with tape.span("forward_backward"):
            loss = scored(model, *rows)
            norm = learn(optimizer, loss, 1.0)
        if step % 5 != 4:
            return {}
        took, begun = time.perf_counter() - begun, time.perf_counter()
        spent, loading = loading, 0.0
        return {
            "loss_metrics/global_avg_loss": loss,
            "grad_norm": norm,
            "lr": now,
            "throughput(tps)": 5 * 480 / took,
            "time_metrics/end_to_end(s)": took / 5,
            "time_metrics/data_loading(s)": spent / 5,
            "time_metrics/data_loading(%)": 100 * spent / took,
        }

    drive(tape, steps, act)


@healthy("eighth")
def healthy_torchtitan_cold_cache(tape: Tape) -> None:
    """The first two dozen batches come from a cold store and take longer; then the loader keeps up."""
    pretrain(tape, 350, lambda step: 0.02 * 0.85**step if step < 24 else 0.001)


@fault("eighth", "data_stall throughput_loss input_bound slow_span", step=190)
def torchtitan_loader_slower(tape: Tape) -> None:
    """From the second dataset of the mixture on, each batch is decompressed anew, which takes 25 ms."""
    pretrain(tape, 350, lambda step: 0.025 if step >= 190 else 0.001)


class Translator(torch.nn.Module):  # type: ignore[misc]
    """Attention over a source with gaps, and the word of the other language at each place."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(25, width), nn.Embedding(16, width)
        self.look, self.inner = nn.Linear(width, 3 * width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 25)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Scores of the words; zero stands for no word, which nothing may look at."""
        hidden = self.words(rows) + self.places(torch.arange(rows.shape[1]))
        query, key, value = self.look(hidden).chunk(3, -1)
        weights = query @ key.mT / math.sqrt(query.shape[-1])
        weights = weights.masked_fill((rows == 0)[:, None], -math.inf).softmax(-1)
        scores: torch.Tensor = self.head(self.inner(hidden + weights @ value)[0])
        return scores


def translate(tape: Tape, steps: int = 500, empty_at: int | None = None) -> None:
    """Translate into a language whose pairs of words change places, as fairseq logs it; a source may be empty."""
    torch.manual_seed(44)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    other = torch.cat([torch.zeros(1, dtype=torch.long), torch.randperm(24) + 1])

    def sentences(pairs: int) -> Pair:
        rows = torch.randint(1, 25, (240 // pairs // 2, 2 * pairs))
        rows = rows * (torch.arange(2 * pairs) < torch.randint(2, 2 * pairs + 1, (len(rows), 1)))
        return rows, other[rows.unflatten(1, (pairs, 2)).flip(2).flatten(1)]

    def act(step: int) -> Values:
        now = set_rate(optimizer, 0.006 * min((step + 1) / 60, math.sqrt(60 / (step + 1))))
        rows, wanted = sentences(int(torch.randint(2, 8, ())))
        if step == empty_at:
            rows[-1] = 0
        scores = model(rows)
        plain = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=0) / math.log(2)
        smooth = F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=0, label_smoothing=0.1)
        norm = learn(optimizer, smooth, 2.0)
        if step % 4:
            return {}
        return {
            "train_inner/loss": smooth / math.log(2),
            "train_inner/nll_loss": plain,
            "train_inner/ppl": 2**plain,
            "train_inner/bsz": len(rows),
            "train_inner/lr": now,
            "train_inner/gnorm": norm,
            "train_inner/clip": 100 * (norm > 2.0),
        }

    drive(tape, steps, act)


@healthy("eighth")
def healthy_fairseq_by_length(tape: Tape) -> None:
    """Batches of like length and so of three to sixty rows, and the rate of the inverse square root."""
    translate(tape)


@fault("eighth", "not_finite counted_not_finite", step=262)
def fairseq_empty_source(tape: Tape) -> None:
    """One source is empty after cleaning; the softmax over nothing is not a number, and soon all weights are not."""
    translate(tape, steps=400, empty_at=262)


def away(found: list[int], wanted: list[int]) -> int:
    """How many words have to be changed, put in or left out."""
    row = list(range(len(wanted) + 1))
    for at, word in enumerate(found):
        last, row[0] = row[0], at + 1
        for to, other in enumerate(wanted):
            last, row[to + 1] = row[to + 1], min(last + (word != other), row[to] + 1, row[to + 1] + 1)
    return row[-1]


def hear(tape: Tape, rate: float, steps: int = 500, warm: int = 30) -> None:
    """Recognise words with CTC."""
    torch.manual_seed(45)
    inner, head = nn.GRU(8, 32, batch_first=True), nn.Linear(32, 10)
    optimizer = torch.optim.AdamW([*inner.parameters(), *head.parameters()], lr=rate)
    others = spoken(60)

    def words(frames: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(head(inner(frames)[0])).log_softmax(-1)

    def wer() -> float:
        with torch.no_grad():
            best = words(others[0]).argmax(-1)
        wrong = 0
        for row, wanted in zip(best.tolist(), others[1].tolist(), strict=True):
            wrong += away([w for at, w in enumerate(row) if w and (at == 0 or row[at - 1] != w)], wanted)
        return float(wrong / others[1].numel())

    def act(step: int) -> Values:
        frames, wanted = spoken(16)
        now = set_rate(optimizer, rate * min(1.0, (step + 1) / warm))
        lengths = torch.full((16,), 20), torch.full((16,), 4)
        loss = F.ctc_loss(words(frames).transpose(0, 1), wanted, *lengths)
        norm = learn(optimizer, loss, 5.0)
        values: Values = {"ctc_loss": loss, "grad_norm": norm, "learning_rate": now} if step % 4 == 0 else {}
        return values | ({"wer": wer()} if step % 25 == 24 else {})

    drive(tape, steps, act)


@healthy("eighth")
def healthy_speech_after_a_plateau(tape: Tape) -> None:
    """It says nothing at all for a while, as CTC does, and then learns one word after another."""
    hear(tape, 0.004)


@fault("eighth", "not_learning plateau constant oscillation absurd_loss divergence dead_units exploding_gradients")
def speech_rate_of_another_optimizer(tape: Tape) -> None:
    """The rate is that of a recipe for SGD, given to AdamW: the loss jumps about, and most words are wrong."""
    hear(tape, 0.8, steps=400, warm=1)


def tag(tape: Tape, steps: int = 500) -> None:
    """Tag words as spaCy logs it: losses are summed over what was read since the last line, batches grow."""
    torch.manual_seed(46)
    words, inner, head = nn.Embedding(60, 24), nn.GRU(24, 24, batch_first=True, bidirectional=True), nn.Linear(48, 6)
    parts: Iterable[Any] = (words, inner, head)
    optimizer = torch.optim.Adam([weight for part in parts for weight in part.parameters()], lr=0.002)
    classes = torch.randint(0, 6, (60,))

    def texts(count: int) -> Pair:
        rows = torch.randint(0, 60, (count, int(torch.randint(6, 20, ()))))
        before = classes[rows.roll(1, 1)]
        return rows, torch.where(rows % 3 == 0, before, classes[rows])

    def scores(rows: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(head(inner(F.dropout(words(rows), 0.1))[0]))

    total, read = 0.0, 0

    def act(step: int) -> Values:
        nonlocal total, read
        rows, wanted = texts(int(min(32, 4 * 1.008**step)))
        loss = F.cross_entropy(scores(rows).flatten(0, 1), wanted.flatten(), reduction="sum")
        learn(optimizer, loss / len(rows), 1.0)
        total, read = total + float(loss.detach()), read + rows.numel()
        if step % 20 != 19:
            return {}
        with torch.no_grad():
            rows, wanted = texts(100)
            right = share_right(scores(rows), wanted)
        found = {"loss_tagger": total, "tag_acc": 100 * right, "score": right, "words": read}
        total = 0.0
        return found

    drive(tape, steps, act)


@healthy("eighth")
def healthy_spacy_growing_batches(tape: Tape) -> None:
    """The losses are sums, so that they grow with the batches, from four texts to thirty-two, before they fall."""
    tag(tape)


def lessons(tape: Tape, steps: int = 500) -> None:
    """Learn sums of growing numbers; each lesson begins with a loss above that of the last."""
    torch.manual_seed(47)
    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.004)
    rate: Rate = cosine(steps, 0.005, warm=10, floor=0.001)
    texts = [sums(2000, limit) for limit in (4, 12, 100)]

    def act(step: int) -> Values:
        lesson = (step >= 170) + (step >= 340)
        now = set_rate(optimizer, rate(step))
        rows, wanted = windows(texts[lesson], torch.randint(0, len(texts[lesson]) - 31, (16,)))
        scores = model(rows)
        loss = F.cross_entropy(scores.reshape(-1, SIGNS), wanted.flatten())
        norm = learn(optimizer, loss, 1.0)
        right = share_right(scores, wanted)
        return {"loss": loss, "token_acc": right, "gnorm": norm, "lr": now, "curriculum/level": lesson}

    drive(tape, steps, act)


@healthy("eighth")
def healthy_curriculum_of_sums(tape: Tape) -> None:
    """At steps 170 and 340 the numbers become larger, as the logged level says, and the loss goes up with them."""
    lessons(tape)
