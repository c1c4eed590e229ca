"""Language models of characters: a transformer and an LSTM, their faults and their healthy characters."""

import math

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.first.loop import Batch, Loop, cosine, linear
from benchmarks.zoo.real.sets.first.supervised_faults import once, put
from benchmarks.zoo.real.tape import Tape

LETTERS = "abcdefghijklmnop ."
CONTEXT = 24
CHARS_STEPS, LSTM_STEPS = 360, 320
CHARS_NAMES = {"loss": "loss", "grad": "grad_norm", "lr": "learning_rate", "val_loss": "eval_loss"}
LSTM_NAMES = {"loss": "train_loss", "grad": "gnorm", "lr": "lr", "val_loss": "valid_loss"}


def text(length: int = 12000, seed: int = 5) -> torch.Tensor:
    """Words of a small vocabulary in random order, with typing errors."""
    made = torch.Generator().manual_seed(seed)
    words = [
        "".join(
            LETTERS[int(each)]
            for each in torch.randint(0, 16, (int(torch.randint(2, 7, (1,), generator=made)),), generator=made)
        )
        for _ in range(40)
    ]
    parts: list[int] = []
    while len(parts) < length:
        word = words[int(torch.randint(0, 40, (1,), generator=made))]
        parts += [LETTERS.index(each) for each in word] + [LETTERS.index(" ")]
    tokens = torch.tensor(parts[:length])
    wrong = torch.rand(length, generator=made) < 0.03
    tokens[wrong] = torch.randint(0, 18, (int(wrong.sum()),), generator=made)
    return tokens


class Characters(torch.nn.Module):
    """A decoder of two layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(18, width)
        self.place = torch.nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        layer = torch.nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = torch.nn.Linear(width, 18)
        self.register_buffer("mask", torch.triu(torch.full((CONTEXT, CONTEXT), -math.inf), 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits for the next character at every place."""
        length = tokens.shape[1]
        hidden = self.embed(tokens) + self.place[:length]
        return self.out(self.blocks(hidden, mask=self.mask[:length, :length]))  # type: ignore[index]


class Recurrent(torch.nn.Module):
    """An LSTM of one layer."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(18, 24)
        self.lstm = torch.nn.LSTM(24, width, batch_first=True)
        self.out = torch.nn.Linear(width, 18)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits for the next character at every place."""
        return self.out(self.lstm(self.embed(tokens))[0])


def over_tokens(out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy over all places."""
    return torch.nn.functional.cross_entropy(out.reshape(-1, 18), targets.reshape(-1))


def _loop(model: torch.nn.Module, batch: int, seed: int, **parts: object) -> Loop:
    tokens = text(seed=seed)

    def cut(starts: torch.Tensor, length: int = CONTEXT) -> Batch:
        places = starts[:, None] + torch.arange(length)
        return tokens[places], tokens[places + 1]

    def draw(step: int) -> Batch:
        return cut(torch.randint(0, 10500, (batch,)))

    def held_out() -> dict[str, float]:
        inputs, targets = cut(torch.arange(10600, 11900, 25))
        return {"val_loss": over_tokens(model(inputs), targets).item()}

    loop = Loop(model, draw, loss=over_tokens, evaluate=held_out)
    for name, part in parts.items():
        setattr(loop, name, part)
    return loop


def chars(steps: int = CHARS_STEPS, batch: int = 16, lr: float = 3e-3, seed: int = 5, **parts: object) -> Loop:
    """A small transformer with AdamW, warm-up and cosine."""
    known = {"steps": steps, "names": CHARS_NAMES, "lr": lr, "schedule": cosine(steps, 20)}
    loop = _loop(Characters(), batch, seed, **known | parts)
    loop.optimizer = torch.optim.AdamW(loop.model.parameters(), lr=lr)
    return loop


def lstm(steps: int = LSTM_STEPS, batch: int = 16, lr: float = 4e-3, seed: int = 6, **parts: object) -> Loop:
    """An LSTM with Adam and clipping."""
    known = {"steps": steps, "names": LSTM_NAMES, "lr": lr, "clip": 1.0, "schedule": linear(steps, 10)}
    return _loop(Recurrent(), batch, seed, **known | parts)


put(
    "chars",
    chars,
    CHARS_STEPS,
    "shuffled_labels stuck_batch frozen no_zero_grad ascent rate_too_high restarted_schedule",
)
put("chars", chars, CHARS_STEPS, "destroyed_layer bad_batch nan rate_zero slow_data")
put(
    "lstm",
    lstm,
    LSTM_STEPS,
    "shuffled_labels stuck_batch frozen no_zero_grad ascent rate_too_high restarted_schedule",
    2,
)
put("lstm", lstm, LSTM_STEPS, "destroyed_layer bad_batch nan rate_zero slow_data", 3)


@fault("chars", "not_learning divergence oscillation absurd_loss plateau", window=400)
def rate_too_high_from_the_start(run: Tape) -> None:
    """The learning rate is a hundred times too high from the first step on."""
    torch.manual_seed(0)
    chars(lr=0.3).fit(run)


@fault("lstm", "not_learning", window=400)
def rate_far_too_low(run: Tape) -> None:
    """The learning rate is a factor of ten thousand too low: nothing is learnt."""
    torch.manual_seed(0)
    lstm(lr=4e-7).fit(run)


@fault("chars", "level_shift spike", 220)
def embedding_lost(run: Tape) -> None:
    """The embedding is drawn anew, as when the tokenizer changes."""
    torch.manual_seed(1)

    def lose(loop: Loop) -> None:
        with torch.no_grad():
            loop.model.embed.weight.normal_()  # type: ignore[union-attr, operator]

    chars().fit(run, once(220, lose))


@fault("lstm", "level_shift", 200)
def other_text(run: Tape) -> None:
    """From step 200 on the text is another one, that is not in the same language."""
    torch.manual_seed(2)
    other = lstm(seed=77)

    def change(loop: Loop) -> None:
        loop.batch = other.batch

    lstm().fit(run, once(200, change))


@fault("lstm", "too_good", 180, window=40)
def leaked_target(run: Tape) -> None:
    """From step 180 on the target is the input: the shift by one is lost."""
    torch.manual_seed(3)

    def change(loop: Loop) -> None:
        inner = loop.batch
        loop.batch = lambda step: (lambda pair: (pair[0], pair[0]))(inner(step))

    lstm().fit(run, once(180, change))


@healthy("chars")
def plain(run: Tape) -> None:
    """Warm-up and cosine."""
    torch.manual_seed(0)
    chars().fit(run)


@healthy("chars")
def constant_rate(run: Tape) -> None:
    """No schedule at all."""
    torch.manual_seed(1)
    chars(schedule=None).fit(run)


@healthy("chars")
def long_warmup(run: Tape) -> None:
    """The warm-up takes a third of the run, then it falls linearly."""
    torch.manual_seed(2)
    chars(schedule=linear(CHARS_STEPS, 120)).fit(run)


@healthy("chars")
def batch_of_two(run: Tape) -> None:
    """Two sequences a step: a noisy loss."""
    torch.manual_seed(3)
    chars(batch=2, steps=500).fit(run)


@healthy("chars", config={"lr": 3e-3, "lr_scheduler_type": "cosine", "warmup_steps": 20, "max_steps": 360})
def with_settings(run: Tape) -> None:
    """As the settings say."""
    torch.manual_seed(4)
    chars().fit(run)


@healthy("chars")
def warmup_stable_decay(run: Tape) -> None:
    """The rate is constant, then falls to nothing in the last fifth: the loss falls faster there."""
    torch.manual_seed(5)
    chars(schedule=lambda step: min((step + 1) / 20, 1.0) * min((CHARS_STEPS - step) / 70, 1.0)).fit(run)


@healthy("lstm")
def plain(run: Tape) -> None:  # noqa: F811
    """Linear schedule, clipped."""
    torch.manual_seed(0)
    lstm().fit(run)


@healthy("lstm")
def variable_lengths(run: Tape) -> None:
    """Sequences of 4 to 24 characters: time and loss change with every step."""
    torch.manual_seed(1)
    loop = lstm(steps=500)
    inner = loop.batch

    def draw(step: int) -> Batch:
        inputs, targets = inner(step)
        length = int(torch.randint(4, CONTEXT + 1, (1,)))
        return inputs[:, :length], targets[:, :length]

    loop.batch = draw
    loop.fit(run)


@healthy("lstm")
def unclipped_sgd(run: Tape) -> None:
    """SGD at a high rate."""
    torch.manual_seed(2)
    loop = lstm(lr=1.0, clip=1e9, schedule=None)
    loop.optimizer = torch.optim.SGD(loop.model.parameters(), lr=1.0)
    loop.fit(run)


@healthy("lstm")
def longer_sequences(run: Tape) -> None:
    """From 6 to 24 characters in three stages, with the length logged: it gets slower each time."""
    torch.manual_seed(3)
    loop = lstm(steps=450)
    inner = loop.batch

    def draw(step: int) -> Batch:
        inputs, targets = inner(step)
        return inputs[:, : (6, 12, 24)[step // 150]], targets[:, : (6, 12, 24)[step // 150]]

    loop.batch = draw
    loop.extra = lambda step: {"seq_len": (6, 12, 24)[step // 150]}
    loop.fit(run)


@healthy("lstm")
def mixed_sources(run: Tape) -> None:
    """Every third batch is of another language, which is harder."""
    torch.manual_seed(4)
    loop, other = lstm(steps=450), lstm(seed=78)
    inner = loop.batch
    loop.batch = lambda step: other.batch(step) if step % 3 == 2 else inner(step)
    loop.fit(run)
