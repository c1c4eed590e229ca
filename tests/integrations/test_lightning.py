"""Lightning really training: the logger's values, the callback's steps, and how the run ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.journal import layout
from stepscope.model.records import Event, Metric, Span
from tests.late import late

integration = late("stepscope.integrations.lightning", "lightning", "torch")
lightning_trainer = late("examples.lightning_trainer")

Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")


def test_the_example(read: Read, status: Callable[[], str | None]) -> None:
    """Values and spans of a step have the same step; validation is a span; the run ends."""
    lightning_trainer.main(steps=4)
    metrics, spans = read(Metric), read(Span)
    losses = [each.step for each in metrics if each.category == "trainer" and "loss" in each.values]
    assert losses == [0, 1, 2, 3]
    ended = [each for each in spans if each.duration is not None]  # a long one is announced while it is open
    assert [each.step for each in ended if each.name == "train.step"] == losses
    assert [each.step for each in metrics if each.category == "evaluator" and "loss" in each.values] == [3]
    assert [each.attrs["train.bucket"] for each in ended if each.name == "train.evaluate"] == ["overhead"]
    configs = [each.attrs.get("config", each.attrs) for each in read(Event) if each.name != "train.run.finished"]
    assert any(config.get("lr") == 0.1 for config in configs)
    assert status() is None
    stepscope.finish()
    assert status() == "finished"


def test_a_failure(read: Read, status: Callable[[], str | None]) -> None:
    """An exception in a step fails the run and is recorded."""

    class Broken(lightning_trainer.Line):
        def training_step(self, batch: Any, index: int) -> Any:
            if index == 2:
                raise ArithmeticError("diverged")
            return super().training_step(batch, index)

    with pytest.raises(ArithmeticError, match="diverged"):
        lightning_trainer.main(steps=4, module=Broken())
    assert status() == "failed"
    assert [each.step for each in read(Span) if each.name == "train.step"] == [0, 1, 2]
    assert any(each.attrs.get("exception.message") == "diverged" for each in read(Event))


def test_in_a_run_of_the_user(read: Read, status: Callable[[], str | None]) -> None:
    """Logger and callback join a run and do not end it."""
    run = stepscope.init(project="mine")
    lightning_trainer.main(steps=2)
    assert stepscope.current_run() is run
    assert status() is None


def test_a_run_that_is_asked_to_stop(
    tmp_path: Path, read: Read, status: Callable[[], str | None], ask_to_stop: Callable[[], None]
) -> None:
    """The training ends after the batch, with a checkpoint of it."""
    import lightning
    import torch
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint

    class User(Callback):  # type: ignore[misc]
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == 1:
                ask_to_stop()

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4)), batch_size=2)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
        callbacks=[integration.StepscopeCallback(), User(), ModelCheckpoint(tmp_path / "saved")],
    )  # fmt: skip
    trainer.fit(lightning_trainer.Line(), loader)
    stepscope.finish()
    assert (trainer.global_step, status()) == (2, "finished")
    assert (tmp_path / "saved" / "stopped-step=2.ckpt").is_file()
    assert next(each for each in read(Event) if each.name == "train.stop.done").attrs["who"] == "ada"


def test_checkpoints_are_recorded(tmp_path: Path, read: Read) -> None:
    """The logger records what a `ModelCheckpoint` saves, with its step; the files are measured."""
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4)), batch_size=2)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
        logger=integration.StepscopeLogger(project="test"), callbacks=[ModelCheckpoint(tmp_path / "saved")],
    )  # fmt: skip
    trainer.fit(lightning_trainer.Line(), loader)
    stepscope.finish()
    named = {each.name: each for each in read(Event)}
    (path,) = (tmp_path / "saved").iterdir()
    saved = named["train.checkpoint"]
    assert (saved.step, saved.attrs["path"]) == (4, str(path))
    assert named["train.checkpoint.measured"].attrs["bytes"] == path.stat().st_size


def test_the_logger_alone(read: Read) -> None:
    """A logger tells what Lightning asks; what is no number is counted, the rest is kept."""
    logger = integration.StepscopeLogger(project="mine")
    assert logger.name == "mine"
    assert logger.version == logger.experiment.id
    logger.log_metrics({"train/loss": 1.0, "val/words": "none"}, step=5)
    logger.log_metrics(None, step=5)  # type: ignore[arg-type]
    counts = logger.experiment.outcomes.snapshot()
    assert counts["rejected/value/string"] == 1
    assert counts["failed/callback/AttributeError"] == 1
    logger.finalize("success")
    (metric,) = read(Metric)
    assert (metric.category, metric.step, metric.values) == ("trainer", 5, {"loss": 1.0})


def fit_and_test(logger: Any, *callbacks: Any) -> None:
    """Do both with one trainer; the test logs the same values each time."""
    import lightning
    import torch

    class WithTest(lightning_trainer.Line):
        def test_step(self, batch: Any, index: int) -> None:
            self.log_dict({"test_acc": 0.5, "test_loss": 2.0})

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 4)), batch_size=2)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", log_every_n_steps=1, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, logger=logger, callbacks=list(callbacks),
    )  # fmt: skip
    module = WithTest()
    trainer.fit(module, loader, loader)
    trainer.test(module, loader, verbose=False)


def test_fit_and_test_are_one_run(read: Read, status: Callable[[], str | None]) -> None:
    """The values of the test are the evaluator's and have names of their own; the run ends with the process."""
    fit_and_test(integration.StepscopeLogger(), integration.StepscopeCallback())
    found = {key: value for each in read(Metric) if each.category == "evaluator" for key, value in each.values.items()}
    assert sorted(found) == ["loss", "test_acc", "test_loss"]
    assert (found["test_acc"], found["test_loss"]) == (0.5, 2.0)
    assert [each.name for each in read(Span)].count("train.evaluate") == 2
    assert status() is None


def test_another_logger_is_another_run(place: Path) -> None:
    """Another logger ends the previous run; so does a callback without a `StepscopeLogger`."""
    fit_and_test(integration.StepscopeLogger())
    first = stepscope.current_run()
    fit_and_test(integration.StepscopeLogger(), integration.StepscopeCallback())
    second = stepscope.current_run()
    fit_and_test(False, integration.StepscopeCallback())
    third = stepscope.current_run()
    stepscope.flush(10)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [run.status for run in (first, second, third)] == ["finished", "finished", "running"]
    assert sorted(layout.list_runs(place)) == sorted(run.id for run in (first, second, third))
