"""Hugging Face's Trainer, and TRL's, really training a tiny model: values, steps, evaluations and failures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.extend import detect_launch
from stepscope.model.records import Event, Metric, Span
from tests.late import late

integration = late("stepscope.integrations.transformers", "transformers", "torch")
transformers_trainer = late("examples.transformers_trainer")

Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")


def test_the_example(read: Read, status: Callable[[], str | None]) -> None:
    """Each step has a loss and a span, each evaluation its loss and a span, and the run ends."""
    transformers_trainer.main(steps=4)
    metrics = read(Metric)
    losses = [each for each in metrics if each.category == "trainer" and "loss" in each.values]
    assert [each.step for each in losses] == [1, 2, 3, 4]
    assert all({"loss", "grad_norm", "learning_rate"} <= set(each.values) for each in losses)
    assert [each.step for each in metrics if each.category == "evaluator" and "loss" in each.values] == [2, 4]
    spans = read(Span)
    assert [each.step for each in spans if each.name == "train.step"] == [1, 2, 3, 4]
    assert {each.attrs["train.bucket"] for each in spans if each.name == "train.step"} == {"productive"}
    assert [each.attrs["train.bucket"] for each in spans if each.name == "train.evaluate"] == ["overhead"] * 2
    started = next(each for each in read(Event) if each.name == "train.run.started")
    assert started.attrs["config"]["args"]["max_steps"] == 4
    assert started.attrs["config"]["model"]["vocab_size"] == 32
    assert status() == "finished"


def trainer(folder: Path, data: Any, **arguments: Any) -> Any:
    """A Trainer with our callback."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    chosen = transformers.TrainingArguments(
        str(folder), max_steps=3, logging_steps=1, per_device_train_batch_size=2, report_to=[], use_cpu=True,
        disable_tqdm=True, **arguments,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    return transformers.Trainer(model, chosen, train_dataset=data, callbacks=[integration.StepscopeCallback()])


def test_a_failure(tmp_path: Path, read: Read, status: Callable[[], str | None]) -> None:
    """An exception in the data fails the run that the user began, and the step where it happened is recorded."""

    class Broken(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            raise OSError("disk on fire")

    data = Broken(transformers_trainer.tokens(16))
    with pytest.raises(OSError, match="disk on fire"), stepscope.init():
        trainer(tmp_path / "out", data).train()
    assert status() == "failed"
    assert any(each.attrs.get("exception.message") == "disk on fire" for each in read(Event))


def test_in_a_run_of_the_user(tmp_path: Path, read: Read, status: Callable[[], str | None]) -> None:
    """The callback joins a run, tells its configuration and checkpoints there, and does not end it."""
    run = stepscope.init(project="mine")
    trainer(tmp_path / "out", transformers_trainer.tokens(16), save_steps=3).train()
    assert stepscope.current_run() is run
    assert status() is None
    events = {each.name: each for each in read(Event)}
    assert events["train.config"].attrs["args"]["logging_steps"] == 1
    assert events["train.checkpoint"].step == 3
    assert Path(events["train.checkpoint"].attrs["path"]).is_dir()


def test_a_run_that_is_asked_to_stop(
    tmp_path: Path, read: Read, status: Callable[[], str | None], ask_to_stop: Callable[[], None]
) -> None:
    """The training ends after the step, with a checkpoint of it."""
    import transformers

    class User(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == 1:
                ask_to_stop()

    made = trainer(tmp_path / "out", transformers_trainer.tokens(16), save_strategy="no")
    made.add_callback(User())
    made.train()
    assert (made.state.global_step, status()) == (2, "finished")
    assert (tmp_path / "out" / "checkpoint-2").is_dir()
    named = {each.name: each for each in read(Event)}
    assert named["train.checkpoint"].step == 2
    assert named["train.stop.done"].attrs["who"] == "ada"


def test_several_ranks_are_not_stopped(
    tmp_path: Path, read: Read, ask_to_stop: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more than one rank the callback does not stop: ranks that stop at different steps wait for each other."""
    stepscope.init()
    launch = detect_launch()._replace(world_size=2)
    monkeypatch.setattr("stepscope.integrations.callback_run.detect_launch", lambda: launch)
    ask_to_stop()
    made = trainer(tmp_path / "out", transformers_trainer.tokens(16), save_strategy="no")
    made.train()
    assert made.state.global_step == 3
    (heard,) = (each for each in read(Event) if each.name == "train.stop.requested")
    assert heard.attrs["asks"] is False


def test_trl(tmp_path: Path, read: Read) -> None:
    """A trainer of TRL takes the same callback."""
    pytest.importorskip("trl", reason="needs trl")
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    import transformers
    from trl import SFTConfig, SFTTrainer

    words = {"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3}
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    whole.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=whole, unk_token="[UNK]", pad_token="[PAD]", eos_token="[PAD]"
    )
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    chosen = SFTConfig(
        str(tmp_path / "out"), max_steps=2, logging_steps=1, per_device_train_batch_size=2, report_to=[], use_cpu=True,
        disable_tqdm=True, bf16=False, save_strategy="no",
    )  # fmt: skip
    data = datasets.Dataset.from_dict({"text": ["a b a b", "b a b a"] * 4})
    SFTTrainer(
        transformers.LlamaForCausalLM(config),
        args=chosen,
        train_dataset=data,
        processing_class=tokenizer,
        callbacks=[integration.StepscopeCallback()],
    ).train()
    losses = [each.step for each in read(Metric) if each.category == "trainer" and "loss" in each.values]
    assert losses == [1, 2]


def test_what_fails_is_counted() -> None:
    """Calls in the wrong order or with the wrong things do not raise into training."""
    run = stepscope.init()
    callback = integration.StepscopeCallback()
    callback.on_log(None, None, None, logs={"loss": 1.0})
    callback.on_step_end(None, None, None)
    callback.on_train_begin(None, None, None)
    assert run.outcomes.snapshot()["failed/callback/AttributeError"] == 2


def test_evaluations_outside_of_training(tmp_path: Path, read: Read) -> None:
    """In a run of the user those before and after the training are recorded, and predictions, each with a span."""
    data = transformers_trainer.tokens(8)
    run = stepscope.init(project="mine")
    chosen = trainer(tmp_path / "out", data, save_strategy="no")
    chosen.evaluate(data)
    chosen.train()
    chosen.evaluate(data)
    chosen.predict(data)
    run.finish()
    values = [each for each in read(Metric) if each.category == "evaluator"]
    assert [each.step for each in values if "loss" in each.values] == [0, 3]
    assert [each.step for each in values if "test_loss" in each.values] == [3]
    assert [each.name for each in read(Span)].count("train.evaluate") == 3


def test_an_evaluation_alone(tmp_path: Path, read: Read, status: Callable[[], str | None]) -> None:
    """With no run it is one of its own, which ends with it; nothing is left behind for the training."""
    data = transformers_trainer.tokens(8)
    trainer(tmp_path / "out", data).evaluate(data)
    assert stepscope.current_run() is None
    assert [each.step for each in read(Metric) if each.category == "evaluator" and "loss" in each.values] == [0]
    started = next(each for each in read(Event) if each.name == "train.run.started")
    assert started.attrs["config"]["model"]["vocab_size"] == 32
    assert status() == "finished"
