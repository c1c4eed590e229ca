"""The fourteenth set: a mass that is held in the middle against wind, by PPO and by a value for each act."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fourteenth.schedules import Rate
from benchmarks.zoo.real.sets.fourteenth.tasks import Values, clipped, dense, drive, still
from benchmarks.zoo.real.tape import Tape

At = Callable[[dict[str, Any], int], None]


class Mass:
    """Masses that are pushed left, right or not; an episode ends after 50 steps, or early when a mass is lost."""

    def __init__(self, count: int, aged: bool = False) -> None:
        self.count, self.aged = count, aged
        self.place, self.speed, self.wind = torch.zeros(3, count).unbind()
        self.age, self.gain = torch.randint(0, 50, (count,)).float(), torch.zeros(count)
        self.seen_speed = 1.0
        self.ended: list[tuple[float, float]] = []
        self._begin(torch.ones(count, dtype=torch.bool))
        self.age = torch.randint(0, 50, (count,)).float()

    def _begin(self, which: torch.Tensor) -> None:
        many = int(which.sum())
        self.place[which], self.speed[which] = 2.4 * torch.rand(many) - 1.2, torch.randn(many) * 0.3
        self.wind[which] = 0.25 * torch.randn(many)
        self.age[which], self.gain[which] = 0.0, 0.0

    def seen(self) -> torch.Tensor:
        """What is seen of each: place, speed, wind, and perhaps its age."""
        parts = (self.place, self.speed * self.seen_speed, self.wind, self.age / 50)
        return torch.stack(parts[: 3 + self.aged], 1)

    def step(self, acts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Push; return the rewards, and which have ended."""
        push = acts.float() - 1
        self.speed = self.speed + 0.12 * (push + self.wind + 0.3 * torch.randn(self.count))
        self.place = self.place + 0.25 * self.speed
        self.age += 1
        reward = (-2 * self.place.square()).exp()
        lost = self.place.abs() > 2
        over = lost | (self.age >= 50)
        self.gain += reward
        self.ended += zip(self.gain[over].tolist(), self.age[over].tolist(), strict=True)
        del self.ended[:-40]
        if over.any():
            self._begin(over)
        return reward, over

    def last(self) -> tuple[float, float]:
        """The mean return and length of the last forty episodes."""
        return tuple(torch.tensor(self.ended or [(0.0, 0.0)]).mean(0).tolist())


def returns(rewards: torch.Tensor, overs: torch.Tensor, values: torch.Tensor, lam: float = 0.95) -> torch.Tensor:
    """Generalized advantages."""
    found, last = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for step in reversed(range(len(rewards))):
        goes = (~overs[step]).float()
        off = rewards[step] + 0.96 * values[step + 1] * goes - values[step]
        found[step] = last = off + 0.96 * lam * goes * last
    return found


def rolled(world: Mass, actor: Any, critic: Any, steps: int) -> tuple[torch.Tensor, ...]:
    """What is seen, done and gained in so many steps, and the values of what was seen."""
    rows: list[list[torch.Tensor]] = [[], [], [], [], []]
    with torch.no_grad():
        for _ in range(steps):
            seen = world.seen()
            chances = actor(seen).log_softmax(-1)
            acts = torch.multinomial(chances.exp(), 1)[:, 0]
            reward, over = world.step(acts)
            for row, each in zip(rows, (seen, acts, chances.gather(1, acts[:, None])[:, 0], reward, over), strict=True):
                row.append(each)
        seen, acts, logs, rewards, overs = (torch.stack(row) for row in rows)
        values = critic(torch.cat((seen, world.seen()[None])))[..., 0]
    return seen, acts, logs, rewards, overs, values


def ppo(tape: Tape, seed: int, mixed: bool = False, steps: int = 150, bonus: Rate = lambda step: 0.01) -> None:
    """PPO, in the names of CleanRL."""
    torch.manual_seed(seed)
    world, actor, critic = Mass(32, True), dense(4, 32, 3, act=nn.Tanh), dense(4, 32, 32, 1, act=nn.Tanh)
    both = nn.ModuleList((actor, critic))
    optimizer = torch.optim.Adam(both.parameters(), 2.5e-3, eps=1e-5, fused=True)

    def act(step: int) -> Values:
        begun = time.perf_counter()
        rate = 2.5e-3 * (1 - step / steps)
        optimizer.param_groups[0]["lr"] = rate
        seen, acts, logs, rewards, overs, values = rolled(world, actor, critic, 16)
        worth = returns(0.1 * rewards, overs, values)
        wanted = worth + values[:-1]
        unexplained = (wanted - values[:-1]).var() / wanted.var()
        # The fault: places in time and masses are flattened in another order than what was seen.
        flat = (wanted.T if mixed else wanted).reshape(-1)
        seen, acts, logs, worth = seen.flatten(0, 1), acts.flatten(), logs.flatten(), worth.flatten()
        found: Values = {}
        for _ in range(2):
            for rows in torch.randperm(len(acts)).split(128):
                scores = actor(seen[rows]).log_softmax(-1)
                ratio = (scores.gather(1, acts[rows, None])[:, 0] - logs[rows]).exp()
                gain = (worth[rows] - worth[rows].mean()) / (worth[rows].std() + 1e-8)
                policy = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                value = 0.5 * (critic(seen[rows])[:, 0] - flat[rows]).square().mean()
                entropy = -(scores.exp() * scores).sum(1).mean()
                optimizer.zero_grad()
                (policy + value - bonus(step) * entropy).backward()
                clipped(both, 0.5)
                optimizer.step()
        found["charts/episodic_return"], found["charts/episodic_length"] = world.last()
        return found | {
            "charts/learning_rate": rate,
            "charts/SPS": 512 / (time.perf_counter() - begun),
            "losses/policy_loss": policy.item(),
            "losses/value_loss": value.item(),
            "losses/entropy": entropy.item(),
            "losses/approx_kl": (ratio - 1 - ratio.log()).mean().item(),
            "losses/clipfrac": ((ratio - 1).abs() > 0.2).float().mean(),
            "losses/explained_variance": 1 - unexplained,
        }

    drive(tape, steps, act)


PPO = {"num_envs": 32, "num_steps": 16, "gamma": 0.96, "clip_coef": 0.2, "anneal_lr": True, "ent_coef": 0.01}


@healthy("fourteenth", config=PPO)
def healthy_ppo(tape: Tape) -> None:
    """Thirty-two masses, and a rate that goes to 0."""
    ppo(tape, 1501)


@fault("fourteenth", "value_function", config=PPO)
def ppo_values_of_others(tape: Tape) -> None:
    """Returns are flattened by mass and not by time: the critic is taught the returns of other moments."""
    ppo(tape, 1502, mixed=True)


@fault("fourteenth", "entropy_explosion reward_collapse", step=65, window=20, config=PPO)
def ppo_bonus_times_two_hundred(tape: Tape) -> None:
    """From 60 on the bonus for entropy is 2 and not 0.01: the acts become random, and masses are lost again."""
    ppo(tape, 1503, bonus=lambda step: 0.01 if step < 60 else 2.0)


def dqn(tape: Tape, seed: int, at: At | None = None, steps: int = 420) -> None:
    """A value for each act with a buffer and a target, in the names of Stable-Baselines3, logged every second step."""
    torch.manual_seed(seed)
    world, model = Mass(8), dense(3, 48, 48, 3)
    target, optimizer = still(model), torch.optim.Adam(model.parameters(), 2e-3, fused=True)
    state: dict[str, Any] = {"world": world}
    kept: list[tuple[torch.Tensor, ...]] = []

    def act(step: int) -> Values | None:
        if at is not None:
            at(state, step)
        chance = max(0.04, 1 - step / 120)
        for _ in range(2):
            seen = world.seen()
            with torch.no_grad():
                acts = model(seen).argmax(1)
            stray = torch.rand(8) < chance
            acts[stray] = torch.randint(0, 3, (int(stray.sum()),))
            reward, over = world.step(acts)
            kept.append((seen, acts, reward, world.seen(), over.float()))
        del kept[:-400]
        rows = [kept[int(each)] for each in torch.randint(0, len(kept), (16,))]
        seen, acts, reward, then, over = (torch.cat(parts) for parts in zip(*rows, strict=True))
        with torch.no_grad():
            wanted = reward + 0.94 * (1 - over) * target(then).max(1).values
        loss = F.smooth_l1_loss(model(seen).gather(1, acts[:, None])[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        clipped(model, 10.0)
        optimizer.step()
        if step % 20 == 0:
            target.load_state_dict(model.state_dict())
        if step % 2 or step < 20:
            return None
        gain, length = world.last()
        found: Values = {"rollout/ep_rew_mean": gain, "rollout/ep_len_mean": length, "train/learning_rate": 2e-3}
        return found | {"rollout/exploration_rate": chance, "train/loss": loss.item(), "train/n_updates": step}

    drive(tape, steps, act)


DQN = {"algo": "DQN", "buffer_size": 3200, "target_update_interval": 20, "exploration_fraction": 0.28, "gamma": 0.94}


@healthy("fourteenth", config=DQN)
def healthy_dqn(tape: Tape) -> None:
    """The loss grows with the values while exploration ends, as it does."""
    dqn(tape, 1511)


@fault("fourteenth", "reward_collapse", step=275, window=35, config=DQN)
def dqn_sensor_turned_round(tape: Tape) -> None:
    """From 260 on the speed is seen with the wrong sign and eight times too large: masses are lost again."""

    def at(state: dict[str, Any], step: int) -> None:
        if step == 260:
            state["world"].seen_speed = -8.0

    dqn(tape, 1512, at)
