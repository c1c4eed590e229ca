"""How the farm's trainings take a step: from batches, against a judge, or by rewards."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.zoo.real.farm.tasks import Batch, Problem, Tokens, Values, mlp

Alter = Callable[[Batch], Batch]


@dataclass(slots=True)
class Knobs:
    """The settings of a training in progress; a fault changes some at its step."""

    optimizers: list[torch.optim.Optimizer]
    batch: int = 32
    clip: float = math.inf
    accumulate: int = 1
    scale: float = 0.0
    """The loss scale of half precision; 0: none."""
    weights: dict[str, float] = field(default_factory=dict)
    sign: float = 1.0
    factor: float = 1.0
    zero: bool = True
    updates: bool = True
    noise: float = 0.0
    digits: int = 0
    """To how many bits of mantissa weights are rounded after each update; 0: not."""
    overflow: bool = False
    alter: Alter | None = None
    alter_held_out: Alter | None = None
    one_batch: bool = False
    learns: bool = True
    """Whether the network is in its training mode for training ..."""
    judges: bool = True
    """... and in that for evaluation when it is evaluated."""
    span: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext()
    wait: Callable[[str], None] = lambda name: None
    skipped: int = 0
    good: int = 0


def descend(k: Knobs, loss: Tensor, which: int = 0, last: bool = True) -> float:
    """Go back through a loss, and update the weights if it is the last part; return the norm of the gradient."""
    optimizer = k.optimizers[which]
    with k.span("train.backward"):
        (k.sign * k.factor * loss / k.accumulate).backward()
    if not last:
        return math.nan
    owned = [each for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    if k.noise:
        for each in owned:
            each.grad += k.noise * each.grad.norm() / math.sqrt(each.numel()) * torch.randn_like(each.grad)
    norm = float(nn.utils.clip_grad_norm_(owned, k.clip)) if owned else 0.0
    with k.span("train.optimizer_step"):
        k.wait("optimizer")
        if _fits(k, norm) and k.updates:
            optimizer.step()
    if k.digits:
        with torch.no_grad():
            for each in owned:
                whole, power = torch.frexp(each)
                each.copy_(torch.ldexp((whole * 2**k.digits).round() / 2**k.digits, power))
    if k.zero:
        optimizer.zero_grad()
    return norm


def _fits(k: Knobs, norm: float) -> bool:
    """Keep the loss scale as a scaler does, and say whether the gradient fits half precision."""
    if not k.scale:
        return True
    if k.overflow or not norm * k.scale < 65504 * 8:
        k.scale, k.good, k.skipped = max(k.scale / 2, 2.0**-14), 0, k.skipped + 1
        return False
    k.good += 1
    if k.good % 200 == 0:
        k.scale *= 2
    return True


class Learner(Protocol):
    """A training that can be stepped; `truth` is how bad it is, by a measure that need not be logged."""

    net: nn.Module
    sort: str
    rate: float
    cost: float
    groups: list[list[nn.Parameter]]

    def step(self, k: Knobs) -> Values:
        """Learn once."""

    def look(self, k: Knobs) -> Values:
        """Evaluate on what is held out."""

    def truth(self) -> float:
        """Return how bad it is."""


class Supervised:
    """Learning from batches."""

    sort = "supervised"

    def __init__(self, problem: Problem) -> None:
        self.problem, self.net, self.rate, self.cost = problem, problem.net, problem.rate, problem.cost
        self.groups = [list(problem.net.parameters())]
        self.held = problem.draw(256, True)
        self.kept: Batch | None = None

    def step(self, k: Knobs) -> Values:
        self.net.train(k.learns)
        total: dict[str, float] = {}
        for part in range(k.accumulate):
            with k.span("train.data_load"):
                k.wait("data")
                batch = self.problem.draw(k.batch, False)
            if k.one_batch:
                self.kept = batch = self.kept or batch
            batch = k.alter(batch) if k.alter else batch
            with k.span("train.forward"):
                k.wait("forward")
                loss, values = self.problem.loss(batch, k.weights)
            norm = descend(k, loss, last=part == k.accumulate - 1)
            for key, value in (values | {"loss": k.factor * loss.detach()}).items():
                value = value.detach() if isinstance(value, Tensor) else value
                total[key] = total.get(key, 0.0) + float(value) / k.accumulate
        return total | {"grad_norm": norm}

    def look(self, k: Knobs) -> Values:
        self.net.train(not k.judges)
        with torch.no_grad():
            loss, values = self.problem.loss(k.alter_held_out(self.held) if k.alter_held_out else self.held, k.weights)
        return values | {"loss": loss}

    def truth(self) -> float:
        self.net.eval()
        with torch.no_grad():
            return float(self.problem.loss(self.held, {})[0])


class Gan:
    """A generator of points against a judge; its truth is how far the moments of its points are from those of data."""

    sort = "gan"
    cost = 2.0

    def __init__(self, d: Random) -> None:
        wide = d.choice([2, 4])
        self.maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, wide))
        self.judge = nn.Sequential(nn.Linear(wide, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self.net, self.rate = nn.ModuleList([self.maker, self.judge]), 4e-3
        self.groups = [list(self.maker.parameters()), list(self.judge.parameters())]
        self.mix, self.mean = torch.randn(wide, wide) * 0.5, torch.randn(wide) * 1.5
        self.hinge = d.random() < 0.3

    def data(self, count: int) -> Tensor:
        """Draw points."""
        return torch.randn(count, len(self.mean)) @ self.mix + self.mean

    def step(self, k: Knobs) -> Values:
        real = self.data(k.batch)
        real = k.alter((real,))[0] if k.alter else real
        made = self.maker(torch.randn(k.batch, 4))
        one, two = self.judge(real), self.judge(made.detach())
        if self.hinge:
            loss_d = F.relu(1 - one).mean() + F.relu(1 + two).mean()
        else:
            loss_d = F.softplus(-one).mean() + F.softplus(two).mean()
        norm = descend(k, loss_d * k.weights.get("judge", 1.0), 1)
        found = self.judge(made)
        loss_g = -found.mean() if self.hinge else F.softplus(-found).mean()
        norm_g = descend(k, loss_g * k.weights.get("maker", 1.0), 0)
        self.judge.zero_grad()
        return {"d_loss": loss_d, "g_loss": loss_g, "d_real": one.sigmoid().mean(), "d_fake": two.sigmoid().mean(),
                "grad_norm": norm_g, "d_grad_norm": norm, "fake_std": made.std(0).mean()}  # fmt: skip

    def look(self, k: Knobs) -> Values:
        return {"fid": self.truth()}

    def truth(self) -> float:
        with torch.no_grad():
            made, real = self.maker(torch.randn(1000, 4)), self.data(1000)
        return float((made.mean(0) - real.mean(0)).norm() + (made.T.cov() - real.T.cov()).norm())


class Ring:
    """Many places on a ring, in each of which somebody walks to a goal; an episode ends there, or after a time."""

    size, limit = 9, 14

    def __init__(self, count: int) -> None:
        self.at, self.goal = (torch.randint(0, self.size, (count,)) for _ in range(2))
        self.age, self.sum = torch.zeros(count), torch.zeros(count)
        self.ended: list[tuple[float, float]] = []
        self.gain, self.blind, self.give = 1.0, False, 1.0

    def seen(self) -> Tensor:
        """What is observed: where one is, and the goal."""
        place = torch.zeros_like(self.at) if self.blind else self.at
        return torch.cat([F.one_hot(place, self.size), F.one_hot(self.goal, self.size)], 1).float()

    def go(self, move: Tensor) -> tuple[Tensor, Tensor]:
        """Move each by -1, 0 or 1; return rewards and which episodes ended."""
        self.at = (self.at + move - 1) % self.size
        there = self.at == self.goal
        self.age += 1
        reward = (there.float() - 0.05) * self.gain * self.give
        self.sum += reward
        ended = there | (self.age >= self.limit)
        self.ended += zip(self.sum[ended].tolist(), self.age[ended].tolist(), strict=True)
        fresh = torch.randint(0, self.size, self.at.shape)
        self.goal = torch.where(ended, fresh, self.goal)
        self.at = torch.where(ended, (fresh + torch.randint(1, self.size, fresh.shape)) % self.size, self.at)
        self.age, self.sum = self.age * ~ended, self.sum * ~ended
        return reward, ended.float()

    def told(self) -> Values:
        """The mean return and length of the last hundred episodes."""
        self.ended = self.ended[-100:]
        if not self.ended:
            return {}
        back, age = zip(*self.ended, strict=True)
        return {"reward": sum(back) / len(back), "ep_len": sum(age) / len(age)}


class Actor:
    """A policy and its critic, by PPO (some passes over each rollout) or A2C (one)."""

    sort, goal = "ppo", -0.85

    def __init__(self, d: Random) -> None:
        self.passes, self.length = d.choice([(1, 5), (3, 16), (4, 12)])
        self.cost = 3.0 if self.passes == 1 else 14.0
        self.ring = Ring(d.choice([16, 32]))
        self.pi, self.value = (nn.Sequential(nn.Linear(18, 32), nn.Tanh(), nn.Linear(32, out)) for out in (3, 1))
        self.net, self.rate = nn.ModuleList([self.pi, self.value]), 4e-3 if self.passes > 1 else 7e-3
        self.groups = [list(self.net.parameters())]
        self.bonus, self.norms = d.choice([0.0, 0.003, 0.01]), d.random() < 0.7

    def step(self, k: Knobs) -> Values:
        rows: list[list[Tensor]] = []
        with k.span("rollout"), torch.no_grad():
            k.wait("data")
            for _ in range(self.length):
                seen = self.ring.seen()
                scores = self.pi(seen).log_softmax(-1)
                move = torch.multinomial(scores.exp(), 1)[:, 0]
                reward, ended = self.ring.go(move)
                rows.append([seen, move, scores.gather(1, move[:, None])[:, 0], reward, ended, self.value(seen)[:, 0]])
            seen, move, old, reward, ended, value = (torch.stack(each) for each in zip(*rows, strict=True))
            reward = reward * k.weights.get("reward", 1.0)
            gain, ahead, last = torch.zeros_like(reward), self.value(self.ring.seen())[:, 0], torch.zeros(1)
            for at in range(self.length - 1, -1, -1):
                last = reward[at] + 0.95 * ahead * (1 - ended[at]) - value[at] + 0.9 * (1 - ended[at]) * last
                gain[at], ahead = last, value[at]
            back = (gain + value).flatten()
            told = 1 - (back - value.flatten()).var() / back.var().clamp(min=1e-8)
        flat = [seen.flatten(0, 1), move.flatten(), old.flatten(), gain.flatten(), back]
        found: Values = {}
        with k.span("train"):
            for _ in range(self.passes):
                for part in torch.randperm(len(back)).chunk(1 if self.passes == 1 else 3):
                    found = self._learn(k, *(each[part] for each in flat))
        return found | {"explained_variance": told} | self.ring.told()

    def _learn(self, k: Knobs, seen: Tensor, move: Tensor, old: Tensor, gain: Tensor, back: Tensor) -> Values:
        if self.norms and not k.weights.get("plain"):
            gain = (gain - gain.mean()) / (gain.std() + 1e-6)
        scores = self.pi(seen).log_softmax(-1)
        log_ratio = scores.gather(1, move[:, None])[:, 0] - old
        ratio, wide = log_ratio.exp(), 0.2 * k.weights.get("wide", 1.0)
        policy = -torch.min(ratio * gain, ratio.clamp(1 - wide, 1 + wide) * gain).mean()
        value = F.mse_loss(self.value(seen)[:, 0], back)
        entropy = -(scores.exp() * scores).sum(-1).mean()
        bonus = self.bonus * k.weights.get("bonus", 1.0) + k.weights.get("more_bonus", 0.0)
        loss = policy + 0.5 * k.weights.get("value", 1.0) * value - bonus * entropy
        norm = descend(k, loss)
        return {"loss": loss, "policy_loss": policy, "value_loss": value, "entropy": entropy, "grad_norm": norm,
                "approx_kl": ((ratio - 1) - log_ratio).mean(),
                "clip_frac": ((ratio - 1).abs() > 0.2).float().mean()}  # fmt: skip

    def look(self, k: Knobs) -> Values:
        return {"reward": -self.truth()}

    def truth(self) -> float:
        return _lost_by(self.pi)


def _lost_by(chooses: nn.Module) -> float:
    """Return how little is rewarded when always the move is taken that is valued most."""
    ring = Ring(64)
    with torch.no_grad():
        for _ in range(Ring.limit + 2):
            ring.go(chooses(ring.seen()).argmax(-1))
    return -ring.told()["reward"]


class Q:
    """Values of moves from a buffer of what was seen, with a slow copy as target (DQN)."""

    sort, cost, goal = "dqn", 1.6, -0.85

    def __init__(self, d: Random) -> None:
        self.q, self.slow = (nn.Sequential(nn.Linear(18, 32), nn.ReLU(), nn.Linear(32, 3)) for _ in range(2))
        self.slow.load_state_dict(self.q.state_dict())
        self.net, self.rate, self.groups = self.q, 5e-3, [list(self.q.parameters())]
        self.ring, self.buffer, self.times = Ring(8), [], 0
        self.every, self.until = d.choice([10, 25, 50]), d.choice([100, 250])
        self.double = d.random() < 0.5

    def step(self, k: Knobs) -> Values:
        chance = max(0.05, 1 - self.times / self.until)
        self.times += 1
        with k.span("rollout"), torch.no_grad():
            k.wait("data")
            seen = self.ring.seen()
            move = torch.where(torch.rand(8) < chance, torch.randint(0, 3, (8,)), self.q(seen).argmax(-1))
            reward, ended = self.ring.go(move)
            if not k.weights.get("stuck"):
                self.buffer = [*self.buffer[-600:], (seen, move, reward, ended, self.ring.seen())]
        rows = torch.randint(0, len(self.buffer), (max(k.batch // 8, 2),)).tolist()
        seen, move, reward, ended, after = (
            torch.cat(each) for each in zip(*(self.buffer[at] for at in rows), strict=True)
        )
        with torch.no_grad():
            target = self.q if k.weights.get("no_target") else self.slow
            best = (self.q if self.double else target)(after).argmax(-1, keepdim=True)
            ahead = target(after).gather(1, best)[:, 0]
            wanted = k.weights.get("reward", 1.0) * reward + k.weights.get("discount", 0.9) * ahead * (
                1 - ended * (not k.weights.get("no_ends"))
            )
        found = self.q(seen).gather(1, move[:, None])[:, 0]
        loss = F.smooth_l1_loss(found, wanted)
        norm = descend(k, loss)
        if self.times % self.every == 0 and not k.weights.get("no_copy"):
            self.slow.load_state_dict(self.q.state_dict())
        return {"loss": loss, "q_mean": found.mean(), "epsilon": chance, "grad_norm": norm} | self.ring.told()

    def look(self, k: Knobs) -> Values:
        return {"reward": -self.truth()}

    def truth(self) -> float:
        return _lost_by(self.q)


class Bandit:
    """A policy that chooses among some arms by what it sees, with the mean reward as baseline."""

    sort, cost = "bandit", 1.0

    def __init__(self, d: Random) -> None:
        self.arms, self.seen = d.choice([3, 5, 10]), d.choice([4, 8])
        self.pay, self.net = torch.randn(self.seen, self.arms), mlp(d, self.seen, 24, self.arms)
        self.rate, self.groups, self.bonus = 4e-3, [list(self.net.parameters())], d.choice([0.0, 0.01])
        self.goal = -float((torch.randn(2000, self.seen) @ self.pay).max(1).values.mean())

    def step(self, k: Knobs) -> Values:
        self.net.train()
        seen = torch.randn(max(k.batch, 16), self.seen)
        scores = self.net(seen).log_softmax(-1)
        arm = torch.multinomial(scores.detach().exp(), 1)
        reward = (seen @ self.pay).gather(1, arm)[:, 0] + 0.5 * torch.randn(len(seen))
        reward = reward * k.weights.get("reward", 1.0) * k.weights.get("give", 1.0)
        entropy = -(scores.exp() * scores).sum(-1).mean()
        gain = reward - (0 if k.weights.get("plain") else reward.mean())
        bonus = self.bonus * k.weights.get("bonus", 1.0) + k.weights.get("more_bonus", 0.0)
        policy = -(gain * scores.gather(1, arm)[:, 0]).mean()
        norm = descend(k, policy - bonus * entropy)
        return {"policy_loss": policy, "reward": reward.mean(), "entropy": entropy, "grad_norm": norm}

    def look(self, k: Knobs) -> Values:
        return {"reward": -self.truth()}

    def truth(self) -> float:
        self.net.eval()
        with torch.no_grad():
            seen = torch.randn(1000, self.seen)
            return -float((seen @ self.pay).gather(1, self.net(seen).argmax(-1, keepdim=True)).mean())


class Groups:
    """A language model answers with words, of which some are rewarded; answers of a group are compared (GRPO)."""

    sort, cost, goal, words, length = "grpo", 9.0, -1.0, 8, 6

    def __init__(self, d: Random) -> None:
        self.net, self.old = Tokens(self.words, "gru", 20), Tokens(self.words, "gru", 20)
        self.old.load_state_dict(self.net.state_dict())
        self.rate, self.groups, self.beta = 1.5e-2, [list(self.net.parameters())], d.choice([0.0, 0.01, 0.04])
        self.members = d.choice([6, 8])

    def answers(self, asked: Tensor, greedy: bool = False) -> Tensor:
        """Write answers; word 0 ends one."""
        text = asked[:, None]
        with torch.no_grad():
            for _ in range(self.length):
                scores = self.net(text)[:, -1]
                word = scores.argmax(-1, keepdim=True) if greedy else torch.multinomial(scores.softmax(-1), 1)
                text = torch.cat([text, torch.where(text[:, -1:].eq(0) & (text.shape[1] > 1), 0, word)], 1)
        return text

    def score(self, text: Tensor) -> Tensor:
        """The share of places with the word that was asked for."""
        return (text[:, 1:] == text[:, :1]).float().mean(1)

    def step(self, k: Knobs) -> Values:
        asked = torch.randint(1, self.words, (8,)).repeat_interleave(self.members)
        with k.span("rollout"):
            k.wait("data")
            text = self.answers(asked)
        reward = self.score(text) * k.weights.get("give", 1.0)
        grouped = k.weights.get("reward", 1.0) * reward.view(-1, self.members)
        spread = grouped.std(1, keepdim=True)
        gain = ((grouped - grouped.mean(1, keepdim=True)) / (spread + 1e-4)).flatten()
        with k.span("train"):
            scores = self.net(text[:, :-1]).log_softmax(-1)
            sure = scores.gather(-1, text[:, 1:, None])[..., 0]
            with torch.no_grad():
                away = self.old(text[:, :-1]).log_softmax(-1).gather(-1, text[:, 1:, None])[..., 0] - sure
            mask = (text[:, :-1].ne(0)).float()
            away = away.clamp(-10, 10)
            kl = (((away.exp() - away - 1) * mask).sum() / mask.sum()).detach()
            pull = (sure - (sure + away).detach()) ** 2 / 2 * mask
            entropy = -((scores.exp() * scores).sum(-1) * mask).sum() / mask.sum()
            loss = -((gain[:, None] * (sure - sure.detach()).exp() * mask).sum() / mask.sum())
            beta = self.beta * k.weights.get("kl", 1.0) + k.weights.get("more_kl", 0.0)
            loss = loss + beta * pull.sum() / mask.sum() - k.weights.get("more_bonus", 0.0) * entropy
            norm = descend(k, loss)
        flat = (spread < 1e-6).float().mean()
        length = mask.sum(1).mean()
        return {"loss": loss, "reward": reward.mean(), "reward_std": spread.mean(), "frac_zero_std": flat, "kl": kl,
                "entropy": entropy, "length": length, "grad_norm": norm}  # fmt: skip

    def look(self, k: Knobs) -> Values:
        return {"reward": -self.truth()}

    def truth(self) -> float:
        asked = torch.arange(1, self.words).repeat(8)
        return -float(self.score(self.answers(asked)).mean())


MADE: dict[str, Callable[[Random], Any]] = {"gan": Gan, "actor": Actor, "q": Q, "bandit": Bandit, "groups": Groups}
