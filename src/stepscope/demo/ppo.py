"""Proximal policy optimisation in numpy, on carts with poles: sample, estimate advantages, train."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stepscope.demo.network import Adam, Network, clipped

Array = Any
GRAVITY, CART, POLE, HALF_LENGTH, FORCE, TICK = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
FALLEN, AWAY = 12 * np.pi / 180, 2.4
"""A pole has fallen at this angle, and a cart has left at this distance."""
LONGEST = 500
"""An episode ends after so many pushes at the latest."""


class Carts:
    """Carts side by side, each begun anew when its pole fell or its time was up."""

    def __init__(self, count: int, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self.state = self._fresh(count)
        self._age = np.zeros(count, int)
        self.lengths: list[int] = []
        """How long the episodes that ended took, since someone emptied it."""

    def _fresh(self, count: int) -> Array:
        return self._draw.uniform(-0.05, 0.05, (count, 4))

    def act(self, pushes: Array) -> tuple[Array, Array]:
        """Push each cart, 0 left and 1 right; the rewards, and which episodes ended."""
        place, speed, angle, turn = self.state.T
        force = np.where(pushes == 1, FORCE, -FORCE)
        mass = CART + POLE
        pull = (force + POLE * HALF_LENGTH * turn**2 * np.sin(angle)) / mass
        down = GRAVITY * np.sin(angle) - np.cos(angle) * pull
        spin = down / (HALF_LENGTH * (4 / 3 - POLE * np.cos(angle) ** 2 / mass))
        push = pull - POLE * HALF_LENGTH * spin * np.cos(angle) / mass
        moved = [place + TICK * speed, speed + TICK * push, angle + TICK * turn, turn + TICK * spin]
        self.state = np.stack(moved, 1)
        self._age += 1
        fell = (np.abs(self.state[:, 0]) > AWAY) | (np.abs(self.state[:, 2]) > FALLEN)
        ended = fell | (self._age >= LONGEST)
        self.lengths += self._age[ended].tolist()
        self.state[ended] = self._fresh(int(ended.sum()))
        self._age[ended] = 0
        return np.where(fell, 0.0, 1.0), ended


@dataclass(frozen=True, slots=True)
class Sample:
    """What the carts did: states, pushes, and the log-probabilities of these, one row for each moment of each cart."""

    states: Array
    pushes: Array
    logps: Array
    advantages: Array
    returns: Array
    explained: float


class Learner:
    """A policy and a value of states."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self.carts = Carts(config["environments"], config["seed"])
        self._draw = np.random.default_rng(config["seed"])
        self._policy = Network((4, 32, 32, 2), config["seed"], last_scale=0.01)
        self._value = Network((4, 32, 32, 1), config["seed"] + 1)
        self._adams = Adam(len(self._policy.vector)), Adam(len(self._value.vector))

    def sample(self) -> tuple[Array, ...]:
        """Play for a while: states, pushes, log-probabilities, rewards, ends, and the states after it."""
        rows = []
        for _ in range(self._config["horizon"]):
            states = self.carts.state
            logps = _log_softmax(self._policy.forward(states))
            pushes = (self._draw.random(len(states)) < np.exp(logps[:, 1])).astype(int)
            rewards, ended = self.carts.act(pushes)
            rows.append((states, pushes, logps[np.arange(len(states)), pushes], rewards, ended))
        return (*(np.stack(column) for column in zip(*rows, strict=True)), self.carts.state)

    def estimate(self, played: tuple[Array, ...]) -> Sample:
        """Estimate how much better each push was than expected."""
        states, pushes, logps, rewards, ended, after = played
        gamma, smoothing = self._config["gamma"], self._config["lambda"]
        values = np.stack([self._value.forward(row)[:, 0] for row in (*states, after)])
        advantages = np.zeros_like(rewards)
        running = np.zeros(rewards.shape[1])
        for at in reversed(range(len(rewards))):
            continues = ~ended[at]
            error = rewards[at] + gamma * values[at + 1] * continues - values[at]
            running = error + gamma * smoothing * running * continues
            advantages[at] = running
        returns = advantages + values[:-1]
        explained = 1 - np.var(returns - values[:-1]) / max(float(np.var(returns)), 1e-8)
        flat = advantages.reshape(-1)
        scaled = (flat - flat.mean()) / (flat.std() + 1e-8)
        return Sample(
            states.reshape(-1, 4), pushes.reshape(-1), logps.reshape(-1), scaled, returns.reshape(-1), explained
        )

    def train(self, sample: Sample, rate: float) -> dict[str, float]:
        """Improve policy and value; the means of what was seen on the way."""
        seen: list[dict[str, float]] = []
        count = len(sample.pushes)
        for _ in range(self._config["epochs"]):
            for part in np.array_split(self._draw.permutation(count), self._config["minibatches"]):
                seen.append(self._improve(sample, part, rate))
        means = {key: float(np.mean([each[key] for each in seen])) for key in seen[0]}
        return {**means, "kl": self._divergence(sample)}

    def _improve(self, sample: Sample, part: Array, rate: float) -> dict[str, float]:
        clip, weight = self._config["clip"], self._config["entropy_weight"]
        pushes, advantages, rows = sample.pushes[part], sample.advantages[part], np.arange(len(part))
        logps = _log_softmax(self._policy.forward(sample.states[part]))
        shares = np.exp(logps)
        ratio = np.exp(logps[rows, pushes] - sample.logps[part])
        bounded = np.clip(ratio, 1 - clip, 1 + clip)
        entropy = -(shares * logps).sum(1)
        open_ = ratio * advantages <= bounded * advantages + 1e-12
        pull = np.where(open_, ratio * advantages, 0.0)
        chosen = np.zeros_like(shares)
        chosen[rows, pushes] = 1
        error = -pull[:, None] * (chosen - shares) + weight * shares * (logps + entropy[:, None])
        norm = self._descend(self._policy, self._adams[0], error / len(part), rate)
        values = self._value.forward(sample.states[part])[:, 0]
        miss = values - sample.returns[part]
        self._descend(self._value, self._adams[1], (miss / len(part))[:, None], 3 * rate)
        policy_loss = -float(np.minimum(ratio * advantages, bounded * advantages).mean())
        value_loss = 0.5 * float((miss**2).mean())
        return {
            "loss": policy_loss + 0.01 * value_loss - weight * float(entropy.mean()),
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": float(entropy.mean()),
            "clip_fraction": float((np.abs(ratio - 1) > clip).mean()),
            "grad_norm": norm,
        }

    def _descend(self, network: Network, adam: Adam, error: Array, rate: float) -> float:
        network.backward(error)
        limited, norm = clipped(network.gradient, 1.0)
        adam.update(network.vector, limited, rate)
        return norm

    def _divergence(self, sample: Sample) -> float:
        """How far the policy is from the one that played: an estimate that is never negative."""
        logps = _log_softmax(self._policy.forward(sample.states))
        log_ratio = logps[np.arange(len(sample.pushes)), sample.pushes] - sample.logps
        return float(np.mean(np.expm1(log_ratio) - log_ratio))


def _log_softmax(scores: Array) -> Array:
    scores = scores - scores.max(1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))
