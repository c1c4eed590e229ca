"""The demo's configuration, and where in it things go wrong on purpose."""

from dataclasses import dataclass
from typing import Any

RANKS = 4
STEPS = 500
"""With fewer steps, there would be too few around a fault to detect that it is unusual."""
PACE = {"train.data_load": 0.003, "train.forward": 0.004, "train.backward": 0.006}
"""Delay of each part of a step in seconds, as of a larger model, so that it can be watched."""
SLOW_BATCH_SECONDS = 1.5
STRAGGLER_SECONDS = 0.012


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens at which step, and on which rank."""

    steps: int = STEPS

    @property
    def slow_batch(self) -> tuple[int, int]:
        """A batch takes long to load."""
        return self.steps * 20 // 100, 0

    @property
    def spike(self) -> tuple[int, int]:
        """A corrupt batch makes the loss jump."""
        return self.steps * 31 // 100, 1

    @property
    def crash(self) -> tuple[int, int]:
        """A process is killed, once."""
        return self.steps * 44 // 100, 1

    @property
    def straggler(self) -> tuple[range, int]:
        """A processor is slow for a while."""
        return range(self.steps * 50 // 100, self.steps * 82 // 100), 2

    @property
    def dropout(self) -> tuple[int, int]:
        """A sample without a value makes the loss NaN."""
        return self.steps * 86 // 100, 3

    @property
    def checkpoint_every(self) -> int:
        """Steps between checkpoints; the crash comes some steps after one."""
        return max(self.steps // 10, 1)

    @property
    def validate_every(self) -> int:
        """Steps between validations."""
        return max(self.steps // 16, 1)

    @property
    def config(self) -> dict[str, Any]:
        """What the run says of itself."""
        return {
            "model": {"layers": [2, 64, 64, 1], "activation": "tanh"},
            "optimizer": {"name": "adam", "lr": 3e-3, "warmup": max(self.steps // 20, 1), "clip": 1.0},
            "data": {"name": "two spirals", "points": 8000, "noise": 0.05},
            "batch_size": 256,
            "steps": self.steps,
            "checkpoint_every": self.checkpoint_every,
            "seed": 7,
        }


@dataclass(frozen=True, slots=True)
class GamePlan:
    """The run of reinforcement learning, and the iteration at which its learning rate is wrong."""

    iterations: int = 75

    @property
    def blow_up(self) -> int:
        """One iteration has a learning rate that is much too high."""
        return self.iterations * 45 // 100

    @property
    def config(self) -> dict[str, Any]:
        """What the run says of itself."""
        return {
            "algorithm": "ppo",
            "environment": "cart pole",
            "environments": 16,
            "horizon": 64,
            "epochs": 4,
            "minibatches": 4,
            "lr": 5e-4,
            "gamma": 0.99,
            "lambda": 0.95,
            "clip": 0.2,
            "entropy_weight": 0.01,
            "target_kl": 0.02,
            "iterations": self.iterations,
            "seed": 3,
        }


def game_plan(steps: int) -> GamePlan:
    """A run of reinforcement learning whose length fits a training of this many steps."""
    return GamePlan(max(steps * 15 // 100, 30))
