"""The thirteenth set: seven-segment digits, read by a network whose files, labels or steps go wrong."""

import io
import time
import zlib
from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.thirteenth.digits import digits, sight
from benchmarks.zoo.real.sets.thirteenth.tasks import Learner, Pair, Rate, Values, cosine, drive, flat, in_evaluation
from benchmarks.zoo.real.tape import Tape

ROWS, BATCH = 1200, 50
STEPS = ROWS // BATCH


def timm(
    tape: Tape,
    rate: Rate,
    seed: int,
    epochs: int,
    labels: Callable[[int, torch.Tensor], torch.Tensor] = lambda epoch, labels: labels,
    patience: int = 0,
) -> None:
    """Once an epoch as timm's summary has it, with fresh noise on the pictures; stops after so many of no gain."""
    torch.manual_seed(seed)
    clean, kinds = digits(ROWS, 0.0)
    held, wanted = digits(600)
    model = sight()
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=5e-4, nesterov=True)
    work = Learner(model, rate, optimizer, clip=1e9)
    best, waited = 0.0, 0

    def part(x: torch.Tensor, y: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: F.cross_entropy(model(x), y)

    def epoch_of(epoch: int) -> Values:
        nonlocal best, waited
        given, total = labels(epoch, kinds), 0.0
        for rows in torch.randperm(ROWS).split(BATCH):
            pictures = clean[rows] + 0.4 * torch.randn(BATCH, 1, 14, 14)
            work.take(epoch, part(pictures, given[rows]))
            total += work.loss / STEPS
        loss = in_evaluation(model, lambda: F.cross_entropy(model(held), wanted))
        right = 100 * in_evaluation(model, lambda: (model(held).argmax(1) == wanted).float().mean())
        best, waited = (right, 0) if right > best else (best, waited + 1)
        return {"epoch": epoch, "train_loss": total, "eval_loss": loss, "eval_top1": right, "lr": work.now}

    drive(tape, epochs, epoch_of, lambda: bool(patience) and waited >= patience)


@healthy("thirteenth", config={"model": "sight12", "opt": "nesterov", "sched": "cosine", "lr-cycle-limit": 3})
def healthy_digits_restarted_warm(tape: Tape) -> None:
    """The rate goes down along a cosine three times: at the begin of each cycle the losses rise and come back."""
    timm(tape, lambda epoch: cosine(0.06, 12, floor=0.02)(epoch % 12), 1321, 36)


@healthy("thirteenth", config={"model": "sight12", "opt": "nesterov", "lr": 0.02, "patience-epochs": 6})
def healthy_digits_some_labelled_wrong(tape: Tape) -> None:
    """One label in five is wrong: the training loss stays above that of what is held out; stopped early."""
    made = torch.Generator().manual_seed(3)
    wrong, other = torch.rand(ROWS, generator=made) < 0.2, torch.randint(0, 10, (ROWS,), generator=made)
    timm(tape, cosine(0.02, 40), 1322, 40, lambda epoch, labels: torch.where(wrong, other, labels), 6)


@fault(
    "thirteenth",
    "accuracy_drop level_shift spike divergence",
    step=17,
    window=2,
    config={"model": "sight12", "opt": "nesterov", "sched": "cosine", "lr": 0.03, "epochs": 34},
)
def digits_classes_sorted_anew(tape: Tape) -> None:
    """At epoch 17 the training files are read anew, and their folders come in another order than those held out."""
    turned = torch.tensor([3, 9, 0, 6, 1, 8, 2, 5, 4, 7])
    timm(tape, cosine(0.03, 34), 1323, 34, lambda epoch, labels: labels if epoch < 17 else turned[labels])


@fault(
    "thirteenth",
    "gradients_not_cleared divergence oscillation exploding_gradients not_learning norm_growth",
    config={"arch": "sight12", "optimizer": "sgd", "lr": 0.03, "batch_size": 32},
)
def digits_gradients_never_cleared(tape: Tape) -> None:
    """The call of `zero_grad` is missing: each step follows the sum of all gradients so far."""
    torch.manual_seed(1324)
    model = sight(normed=False)
    work = Learner(model, flat(0.03), torch.optim.SGD(model.parameters()), clip=1e9, clears=False)

    def act(step: int) -> Values:
        x, y = digits(32)
        scores: list[torch.Tensor] = []

        def loss() -> torch.Tensor:
            scores.append(model(x))
            return F.cross_entropy(scores[0], y)

        work.take(step, loss)
        right = (scores[0].argmax(1) == y).float().mean()
        return {"train/loss": work.loss, "train/acc": right, "train/grad_norm": work.norm, "train/lr": work.now}

    drive(tape, 300, act)


class Files:
    """Pictures as files: small ones, or the originals in which each point is sixteen by sixteen."""

    def __init__(self, count: int) -> None:
        pictures, self.labels = digits(count)
        self.small = [self._file(picture) for picture in pictures]
        self.large = [self._file(picture.repeat_interleave(16, 1).repeat_interleave(16, 2)) for picture in pictures]

    @staticmethod
    def _file(picture: torch.Tensor) -> bytes:
        return zlib.compress(bytes(((picture + 3) * 30).clamp(0, 255).byte().flatten().tolist()), 1)

    def picture(self, at: int, large: bool) -> torch.Tensor:
        """Unpack a file and bring it to its small size."""
        data = bytearray(zlib.decompress((self.large if large else self.small)[at]))
        points = torch.frombuffer(data, dtype=torch.uint8).float() / 30 - 3
        return F.avg_pool2d(points.view(1, 224, 224), 16) if large else points.view(1, 14, 14)

    def batch(self, rows: list[int], large: Callable[[int], bool]) -> Pair:
        """Read a batch, a part of it from the large files."""
        pictures = [self.picture(row, large(at)) for at, row in enumerate(rows)]
        return torch.stack(pictures), self.labels[rows]


def lightning(tape: Tape, large: Callable[[int, int], bool], seed: int, steps: int, saves: bool = False) -> None:
    """Reads files in the loop, in the names of Lightning: a step every second, an epoch at forty."""
    torch.manual_seed(seed)
    files = Files(400)
    held, wanted = digits(400)
    model = sight()
    work = Learner(model, cosine(3e-3, steps, 10))

    def act(step: int) -> Values:
        begun = time.perf_counter()
        with tape.span("train.data_load"):
            x, y = files.batch(torch.randint(0, 400, (24,)).tolist(), lambda at: large(step, at))
            x = x + 0.4 * torch.randn(x.shape)
        with tape.span("train.forward_backward"):
            work.take(step, lambda: F.cross_entropy(model(x), y))
        found: Values = {}
        if step % 2 == 0:
            found = {"train_loss_step": work.loss, "lr-AdamW": work.now, "batch_time": time.perf_counter() - begun}
        if step % 40 == 39:
            with tape.span("train.eval"):
                found["val_loss"] = in_evaluation(model, lambda: F.cross_entropy(model(held), wanted))
                found["val_acc"] = in_evaluation(model, lambda: (model(held).argmax(1) == wanted).float().mean())
            found["epoch"] = step // 40
            if saves:
                with tape.span("train.checkpoint.save"):
                    torch.save([model.state_dict(), work.optimizer.state_dict()], io.BytesIO())
        return found

    drive(tape, steps, act)


@healthy("thirteenth", config={"max_epochs": 8, "devices": 1, "num_workers": 0, "save_every_n_epochs": 1})
def healthy_digits_some_files_large(tape: Tape) -> None:
    """Here and there an original among the small files, and all of the first batch of an epoch from originals."""
    lightning(tape, lambda step, at: (step % 40 == 0 and at < 12) or (at + 7 * step) % 90 == 0, 1325, 320, saves=True)


@fault(
    "thirteenth",
    "data_stall throughput_loss slow_span input_bound",
    step=170,
    window=15,
    config={"max_epochs": 8, "devices": 1, "num_workers": 0, "cache": "local"},
)
def digits_cache_full(tape: Tape) -> None:
    """From 170 on the cache of small files is full: each picture is unpacked and made small from its original."""
    lightning(tape, lambda step, at: step >= 170, 1326, 320)
