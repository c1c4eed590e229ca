"""Ray Train and Ray Tune really running: reports and results are in the journal of one run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import stepscope
from stepscope.model.records import Event, Metric, Span
from tests.late import late
from tests.ray_peer import connected

train, tune = late("ray.train"), late("ray.tune")
integration = late("stepscope.integrations.ray_train", "ray")
ray_train, ray_tune = late("examples.ray_train"), late("examples.ray_tune")

Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture(autouse=True, scope="module")
def cluster() -> Iterator[None]:
    """A job in a Ray; a watcher of preempted machines would be one more process in each training."""
    root = str(Path(__file__).resolve().parents[2])
    env = {"RAY_TRAIN_V2_ENABLED": "1", "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}
    patient = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600"}
    with connected({"env_vars": {"PYTHONPATH": root, **env, **patient}}):
        yield


@pytest.mark.parametrize(
    ("report", "step"),
    [
        ({"step": 1, "global_step": 100}, (100, "global_step")),
        ({"global_step": numpy.int64(100)}, (100, "global_step")),
        ({"training_iteration": 2, "step": numpy.int32(4)}, (4, None)),
        ({"step": True, "global_step": 1.5, "training_iteration": 2}, (2, "training_iteration")),
        ({"timesteps": 4096, "policy_version": 3}, (3, "policy_version")),
        ({"loss": 1.0}, (9, "report")),
    ],
)
def test_the_step_of_a_report(report: dict[str, Any], step: tuple[int, str | None]) -> None:
    """The strongest name that has an integer gives it, in the order of trainers; numpy's integers are some."""
    from stepscope.integrations.ray_train import _step

    assert _step(report, 9) == step


def test_tune(tmp_path: Path, read: Read, status: Callable[[], str | None]) -> None:
    """Each trial has its values by training iteration, its configuration and a span."""
    ray_tune.main(str(tmp_path / "ray"))
    metrics = [each for each in read(Metric) if each.axis == "training_iteration"]
    assert {each.category for each in metrics} == {"trainer"}
    trials: dict[str, list[tuple[Any, Any]]] = {}
    for each in metrics:
        for key, value in each.values.items():
            if key.endswith("/loss"):
                trials.setdefault(key.partition("/")[0], []).append((each.step, value))
    assert sorted(trials.values()) == [
        [(1, pytest.approx(0.1 * 3)), (2, pytest.approx(0.1 * 2)), (3, pytest.approx(0.1))],
        [(1, pytest.approx(0.2 * 3)), (2, pytest.approx(0.2 * 2)), (3, pytest.approx(0.2))],
    ]
    spans = [each for each in read(Span) if each.name == "tune.trial"]
    assert {each.attrs["tune.trial.id"] for each in spans} == set(trials)
    assert sorted(each.attrs["lr"] for each in read(Event) if each.name == "train.config") == [0.1, 0.2]
    assert status() == "finished"


def test_tune_fails(tmp_path: Path, read: Read, status: Callable[[], str | None]) -> None:
    """When every trial fails, so has the run, and the error is recorded."""

    def objective(config: Any) -> None:
        raise ArithmeticError("diverged")

    tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        run_config=tune.RunConfig(
            callbacks=[integration.StepscopeTuneCallback()], verbose=0, storage_path=str(tmp_path / "ray")
        ),
    ).fit()
    assert status() == "failed"
    (span,) = [each for each in read(Span) if each.name == "tune.trial"]
    assert span.status == 2
    assert any("diverged" in each.attrs.get("exception.message", "") for each in read(Event))


def test_train(tmp_path: Path, read: Read, status: Callable[[], str | None]) -> None:
    """Reports of two workers are in the driver's run, by their step."""
    ray_train.main(str(tmp_path / "ray"))
    found = {}
    for each in read(Metric):
        assert each.category == "trainer"
        for key, value in each.values.items():
            found[key, each.step] = value
    assert [found["loss", step] for step in range(3)] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert [found["worker_1/loss", step] for step in range(3)] == [2.0, 1.5, pytest.approx(4 / 3)]
    assert status() == "finished"


def test_train_fails(read: Read, status: Callable[[], str | None], tmp_path: Path) -> None:
    """A worker's exception is recorded by the controller, and the driver's run has failed."""
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def explode() -> None:
        raise ArithmeticError("diverged")

    with pytest.raises(Exception, match="diverged"), stepscope.init():
        DataParallelTrainer(
            explode,
            scaling_config=train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 0.5}),
            run_config=train.RunConfig(
                callbacks=[integration.StepscopeTrainCallback()], storage_path=str(tmp_path / "ray")
            ),
        ).fit()
    assert status() == "failed"
    errors = [each for each in read(Event) if each.name == "exception" and "ray.worker" in each.attrs]
    assert [each.attrs["ray.worker"] for each in errors] == [0]
    assert "diverged" in errors[0].attrs["exception.message"]
