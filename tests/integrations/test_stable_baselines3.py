"""Stable-Baselines3 really learning: its values by timesteps, and spans of sampling and training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope.model.records import Event, Metric, Span
from tests.late import late

integration = late("stepscope.integrations.stable_baselines3", "stable_baselines3", "gymnasium")
stable_baselines3_ppo = late("examples.stable_baselines3_ppo")

Read = Callable[..., list[Any]]
pytestmark = pytest.mark.usefixtures("place")


def test_the_example(read: Read, status: Callable[[], str | None]) -> None:
    """Each rollout of 64 steps is a dump of values on the axis of timesteps."""
    stable_baselines3_ppo.main(timesteps=192)
    metrics = read(Metric)
    actor = [each for each in metrics if each.category == "actor"]
    assert [each.step for each in actor] == [64, 128, 192]
    assert {each.axis for each in metrics} == {"timesteps"}
    assert "ep_rew_mean" in actor[-1].values
    assert [each.step for each in metrics if each.category == "trainer" and "loss" in each.values] == [128, 192]
    assert all("time/fps" in each.values for each in metrics if each.category == "misc")
    spans = read(Span)
    assert [each.name for each in spans if each.name.startswith("rl.")] == ["rl.sample", "rl.train"] * 3
    assert {each.attrs["train.bucket"] for each in spans if each.name.startswith("rl.")} == {"productive"}
    started = next(each for each in read(Event) if each.name == "train.run.started")
    assert started.attrs["config"]["algorithm"] == "PPO"
    assert started.attrs["config"]["n_steps"] == 64
    assert status() == "finished"


def test_a_run_that_is_asked_to_stop(
    read: Read, status: Callable[[], str | None], ask_to_stop: Callable[[], None]
) -> None:
    """`learn` returns in the rollout, at the next step."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    class User(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            if self.num_timesteps == 100:
                ask_to_stop()
            return True

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=0)
    model.learn(192, callback=[integration.StepscopeCallback(project="test"), User()])
    assert (model.num_timesteps, status()) == (101, "finished")


def test_a_failure(read: Read, status: Callable[[], str | None]) -> None:
    """An exception in another callback fails the user's run; what was dumped before is there."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    class Bomb(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps > 100:
                raise ArithmeticError("diverged")
            return True

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=0)
    with pytest.raises(ArithmeticError), stepscope.init():
        model.learn(192, callback=[integration.StepscopeCallback(), Bomb()])
    assert status() == "failed"
    assert [each.step for each in read(Metric) if each.category == "actor"] == [64]


def test_learning_twice_writes_once(read: Read) -> None:
    """The callback takes its writer out of the algorithm's logger when learning ends."""
    from stable_baselines3 import A2C

    stepscope.init()
    model = A2C("MlpPolicy", "CartPole-v1", n_steps=8, device="cpu", seed=0)
    for _ in range(2):
        model.learn(16, callback=integration.StepscopeCallback(), log_interval=1, reset_num_timesteps=False)
    assert [each.step for each in read(Metric) if each.category == "misc"] == [8, 16, 24, 32]


def test_learning_again_after_a_failure(read: Read, status: Callable[[], str | None], tmp_path: Path) -> None:
    """A failure that was caught leaves a writer in a logger of the user's, and the run open: both are taken up."""
    from stable_baselines3 import A2C
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import configure

    class Bomb(BaseCallback):
        def _on_step(self) -> bool:
            raise ArithmeticError("diverged")

    model = A2C("MlpPolicy", "CartPole-v1", n_steps=8, device="cpu", seed=0)
    model.set_logger(configure(str(tmp_path / "log"), ["csv"]))
    recording = integration.StepscopeCallback()
    with pytest.raises(ArithmeticError):
        model.learn(16, callback=[recording, Bomb()])
    model.learn(16, callback=recording, log_interval=1)
    assert [each.step for each in read(Metric) if each.category == "misc"] == [8, 16]
    assert status() == "finished"
