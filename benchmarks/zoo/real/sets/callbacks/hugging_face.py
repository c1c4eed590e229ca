"""The Trainer of Transformers with our callback and its default names: language models and classifiers."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import transformers

import stepscope
from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.journal_tapes import recorded_run
from benchmarks.zoo.real.tape import Tape
from stepscope.integrations.transformers import StepscopeCallback

WORDS, LENGTH, BATCH = 32, 20, 8
PAD, IGNORED = 0, -100
Sample = dict[str, Any]
Draw = Callable[[int, torch.Generator], Sample]


class Stream(torch.utils.data.IterableDataset[Sample]):
    """Samples without end, each drawn from its own number."""

    def __init__(self, draw: Draw, samples: int | None = None) -> None:
        self._draw, self._samples = draw, samples
        self._salt = int(torch.randint(1 << 30, ()))

    def __iter__(self) -> Iterator[Sample]:
        numbers = itertools.count() if self._samples is None else range(self._samples)
        for number in numbers:
            yield self._draw(number, torch.Generator().manual_seed(self._salt + number))


def text(number: int, random: torch.Generator) -> Sample:
    """A text in which each word follows from the first two, but for one in eight."""
    begin, stride = torch.randint(1, WORDS, (1,), generator=random), torch.randint(1, 4, (1,), generator=random)
    words = 1 + (begin + stride * torch.arange(LENGTH)) % (WORDS - 1)
    odd = torch.rand(LENGTH, generator=random) < 0.125
    words = torch.where(odd, torch.randint(1, WORDS, (LENGTH,), generator=random), words)
    return {"input_ids": words, "labels": words.clone()}


def padded(number: int, random: torch.Generator) -> Sample:
    """A text of any length, padded, with the padding left out of the loss."""
    sample = text(number, random)
    length = int(torch.randint(4, LENGTH + 1, (), generator=random))
    sample["input_ids"][length:], sample["labels"][length:] = PAD, IGNORED
    sample["attention_mask"] = (torch.arange(LENGTH) < length).long()
    return sample


def review(number: int, random: torch.Generator) -> Sample:
    """A text whose class is that of most of its words, with one label in twelve wrong."""
    label = int(torch.randint(0, 4, (), generator=random))
    words = torch.randint(1, WORDS, (LENGTH,), generator=random)
    telling = torch.rand(LENGTH, generator=random) < 0.3
    words = torch.where(telling, 1 + 7 * label + torch.randint(0, 7, (LENGTH,), generator=random), words)
    if float(torch.rand((), generator=random)) < 0.08:
        label = int(torch.randint(0, 4, (), generator=random))
    return {"input_ids": words, "labels": torch.tensor(label)}


def language_model(seed: int, layers: int = 2) -> Any:
    """A small Llama."""
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS, hidden_size=48, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=4,
            pad_token_id=PAD,
        )
    )  # fmt: skip


def classifier(seed: int) -> Any:
    """A small BERT with four classes."""
    torch.manual_seed(seed)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_labels=4, max_position_embeddings=LENGTH,
        )
    )  # fmt: skip


class At(transformers.TrainerCallback):  # type: ignore[misc]
    """Calls a function of the trainer's objects before one step, or before every step from it on."""

    def __init__(self, step: int, change: Callable[..., None], always: bool = False) -> None:
        self._step, self._change, self._always = step, change, always

    def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Change what is trained."""
        if state.global_step + 1 == self._step or (self._always and state.global_step + 1 > self._step):
            self._change(**parts)


def right(predicted: Any) -> dict[str, float]:
    """The accuracy of an evaluation."""
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


def fit(
    tape: Tape,
    model: Any,
    data: Draw | Any = text,
    held_out: Draw | None = None,
    callbacks: tuple[Any, ...] = (),
    ended_by: tuple[type[Exception], ...] = (),
    trainer: type[transformers.Trainer] = transformers.Trainer,
    parts: dict[str, Any] | None = None,
    **arguments: Any,
) -> None:
    """Train with the callback alone, as its page says; where the training fails, in a run of the user."""
    chosen = {"max_steps": 240, "learning_rate": 3e-3, "logging_steps": 1, "per_device_train_batch_size": BATCH}
    chosen |= {"eval_strategy": "steps", "eval_steps": 40} if held_out is not None else {}
    with recorded_run(tape, ended_by) as settings:
        made = trainer(
            model,
            transformers.TrainingArguments(
                f"{settings['home']}/out",
                **{"save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True} | chosen | arguments,
            ),
            train_dataset=Stream(data) if callable(data) else data,
            eval_dataset=None if held_out is None else list(Stream(held_out, 64)),
            compute_metrics=right if isinstance(model, transformers.BertForSequenceClassification) else None,
            callbacks=[StepscopeCallback(**settings), *callbacks],
            **(parts or {}),
        )
        made.remove_callback(transformers.PrinterCallback)
        with stepscope.init(**settings) if ended_by else nullcontext():
            made.train()


@healthy("transformers")
def language_model_linear(tape: Tape) -> None:
    """The default schedule: linear to zero, without a warm-up."""
    fit(tape, language_model(0), held_out=text)


@healthy("transformers")
def language_model_cosine(tape: Tape) -> None:
    """Warm-up and cosine, logged every fifth step."""
    fit(
        tape, language_model(1), max_steps=400, logging_steps=5, lr_scheduler_type="cosine", warmup_steps=40,
        weight_decay=0.1,
    )  # fmt: skip


@healthy("transformers")
def classifier_small_batches(tape: Tape) -> None:
    """Batches of four, a constant rate, evaluations with an accuracy."""
    fit(
        tape, classifier(2), review, review, lr_scheduler_type="constant", per_device_train_batch_size=4,
        learning_rate=1e-3, max_steps=300,
    )  # fmt: skip


@healthy("transformers")
def accumulated(tape: Tape) -> None:
    """Gradients of four batches in a step, texts of different lengths, restarts of a cosine."""
    fit(
        tape, language_model(3), padded, padded, gradient_accumulation_steps=4, max_steps=160,
        lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs={"num_cycles": 3}, warmup_steps=10,
    )  # fmt: skip


@healthy("transformers")
def head_only(tape: Tape) -> None:
    """The body of the model is frozen on purpose, the head learns."""
    model = classifier(4)
    for parameter in model.bert.embeddings.parameters():
        parameter.requires_grad = False
    fit(tape, model, review, review, max_steps=300, learning_rate=1e-3)


@healthy("transformers")
def epochs_and_checkpoints(tape: Tape) -> None:
    """Six epochs of a small set, a checkpoint and an evaluation after each, the best of which is loaded at the end."""
    model = classifier(5)
    data = list(Stream(review, 400))
    fit(
        tape, model, data, review, max_steps=-1, num_train_epochs=5, learning_rate=5e-4, eval_strategy="epoch",
        save_strategy="epoch", load_best_model_at_end=True, save_total_limit=1, logging_steps=10,
    )  # fmt: skip


@healthy("transformers")
def smoothed(tape: Tape) -> None:
    """Label smoothing, a plateau schedule, logged every tenth step."""
    fit(
        tape, language_model(6), held_out=text, label_smoothing_factor=0.1, logging_steps=10, max_steps=300,
        lr_scheduler_type="reduce_lr_on_plateau",
    )  # fmt: skip


def _from(step: int, before: Draw, after: Draw) -> Draw:
    """One source of samples, and another from a step on."""
    return lambda number, random: (before if number < (step - 1) * BATCH else after)(number, random)


def _wrong_label(number: int, random: torch.Generator) -> Sample:
    return review(number, random) | {"labels": torch.randint(0, 4, (), generator=random)}


@fault("transformers", "level_shift divergence accuracy_drop", step=150)
def labels_shuffled(tape: Tape) -> None:
    """A shard with wrong labels from step 150 on."""
    fit(tape, classifier(10), _from(150, review, _wrong_label), review, max_steps=300, learning_rate=1e-3)


@fault("transformers", "divergence not_learning oscillation absurd_loss exploding_gradients spike level_shift")
def rate_too_high(tape: Tape) -> None:
    """A rate for another optimizer: 0.3 with AdamW."""
    fit(tape, language_model(11), learning_rate=0.3)


@fault("transformers", "not_finite constant not_learning absurd_loss vanishing_gradients")
def all_labels_masked(tape: Tape) -> None:
    """The template of the answer is not found, so that no word is in the loss."""

    def masked(number: int, random: torch.Generator) -> Sample:
        return text(number, random) | {"labels": torch.full((LENGTH,), IGNORED)}

    fit(tape, language_model(12), masked, max_steps=120)


@fault("transformers", "padding too_good overfit")
def padding_in_the_loss(tape: Tape) -> None:
    """Most words are padding, which the loss of the training has and that of the evaluation has not."""

    def learned(number: int, random: torch.Generator) -> Sample:
        sample = padded(number, random)
        length = int(torch.randint(3, 7, (), generator=random))
        sample["input_ids"][length:], sample["attention_mask"][length:] = PAD, 0
        return sample | {"labels": sample["input_ids"].clone()}

    fit(tape, language_model(13), learned, padded)


@fault("transformers", "lr_zero", step=120)
def schedule_ends_early(tape: Tape) -> None:
    """The schedule was made for half as many steps."""
    model = language_model(14)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 10, 120)
    fit(tape, model, held_out=text, parts={"optimizers": (optimizer, schedule)})


@fault("transformers", "lr_schedule", step=150)
def rate_restarted(tape: Tape) -> None:
    """The schedule begins again at step 150, as after a resume without its state."""

    def restart(lr_scheduler: Any, **parts: Any) -> None:
        lr_scheduler.last_epoch = 0
        lr_scheduler.step(0)

    fit(tape, language_model(15), callbacks=(At(150, restart),), lr_scheduler_type="cosine")


@fault("transformers", "not_finite", step=130)
def bad_weights(tape: Tape) -> None:
    """One weight becomes NaN at step 130; the Trainer leaves NaN out of the losses that it logs."""

    def spoil(model: Any, **parts: Any) -> None:
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")

    fit(tape, language_model(16), callbacks=(At(130, spoil),), logging_steps=5)


@fault("transformers", "data_stall throughput_loss slow_span input_bound", step=140)
def slow_samples(tape: Tape) -> None:
    """Samples take 5 ms each from step 140 on: 40 ms a step."""

    def slow(number: int, random: torch.Generator) -> Sample:
        time.sleep(0.005)
        return text(number, random)

    fit(tape, language_model(17), _from(140, text, slow), max_steps=300)


@fault("transformers", "level_shift spike bad_resume divergence", step=150)
def other_checkpoint(tape: Tape) -> None:
    """The weights of a model that was not trained are loaded at step 150."""
    other = language_model(99).state_dict()
    fit(tape, language_model(18), callbacks=(At(150, lambda model, **parts: model.load_state_dict(other)),))


@fault("transformers", "overfit")
def forty_samples(tape: Tape) -> None:
    """Forty texts are learned by heart."""
    model = classifier(19)
    data = list(Stream(review, 40))
    fit(tape, model, data, review, max_steps=400, learning_rate=1e-3, eval_steps=20, lr_scheduler_type="constant")


@fault("transformers", "crash", step=101)
def token_out_of_range(tape: Tape) -> None:
    """A word that the embedding does not have."""

    def unknown(number: int, random: torch.Generator) -> Sample:
        sample = text(number, random)
        sample["input_ids"][3] = WORDS
        return sample

    fit(tape, language_model(20), _from(101, text, unknown), ended_by=(IndexError,))


@fault("transformers", "stuck_batch too_good", step=140, window=40)
def one_sample_for_ever(tape: Tape) -> None:
    """The source gives the same samples again and again from step 140 on."""
    kept = list(Stream(text, BATCH))

    def same(number: int, random: torch.Generator) -> Sample:
        return kept[number % BATCH]

    fit(tape, language_model(21), _from(140, text, same), max_steps=320, lr_scheduler_type="constant")


@fault("transformers", "plateau weights_frozen", step=80, window=60)
def frozen_by_a_callback(tape: Tape) -> None:
    """From step 80 on, while the loss still falls, gradients are dropped before the optimizer sees them."""

    class Dropping(transformers.TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            if state.global_step + 1 >= 80:
                for parameter in parts["model"].parameters():
                    parameter.grad = None

    fit(
        tape, language_model(22), callbacks=(Dropping(),), max_steps=320, learning_rate=8e-4,
        lr_scheduler_type="constant",
    )  # fmt: skip
