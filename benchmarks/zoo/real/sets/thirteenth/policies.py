"""The thirteenth set: values and policies that dock boats, and policies of signs that sort digits."""

import copy
import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.thirteenth.tasks import Learner, Rate, Values, cosine, dense, drive, flat
from benchmarks.zoo.real.tape import Tape

LENGTH = 32
DQN = {"gamma": 0.97, "learning_rate": 2e-3, "batch_size": 96, "target_network_frequency": 20}
GRPO = {"trainer": "GRPOTrainer", "num_generations": 8, "beta": 0.01, "num_iterations": 2}
DPO = {"trainer": "DPOTrainer", "beta": 0.1, "learning_rate": 3e-4, "logging_steps": 2}
PPO = {"algo": "ppo", "n_steps": 32, "n_epochs": 4, "clip_range": 0.2, "ent_coef": 0.003}


class Docks:
    """Boats that are pushed left, not at all or right for 32 steps, and lose by their distance from the dock."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.begin()

    def begin(self) -> torch.Tensor:
        """Put all boats somewhere."""
        self.place, self.speed = 2 * torch.rand(self.count) - 1, 0.2 * torch.randn(self.count)
        self.total, self.time = torch.zeros(self.count), 0
        return self.seen()

    def seen(self) -> torch.Tensor:
        """Place, speed and time."""
        return torch.stack([self.place, 3 * self.speed, torch.full_like(self.place, self.time / LENGTH)], 1)

    def push(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """What is seen then, the rewards, and whether all is over."""
        self.speed = 0.92 * self.speed + 0.06 * (action - 1) + 0.01 * torch.randn(self.count)
        self.place = (self.place + self.speed).clamp(-2, 2)
        self.time += 1
        reward = -self.place.abs() - 0.2 * self.speed.abs()
        self.total += reward
        return self.seen(), reward, self.time == LENGTH


def dqn(tape: Tape, target_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], seed: int, steps: int) -> None:
    """Values of actions by two networks in the names of CleanRL; `target_of` makes one of both that follow."""
    torch.manual_seed(seed)
    docks, models = Docks(8), [dense((3, 48, 48, 3)) for _ in range(2)]
    olds = copy.deepcopy(models)
    weights = [weight for model in models for weight in model.parameters()]
    optimizer = torch.optim.Adam(weights, 2e-3)
    kept: deque[tuple[torch.Tensor, ...]] = deque(maxlen=500)
    seen = docks.begin()

    def act(step: int) -> Values | None:
        nonlocal seen
        chance = max(0.05, 1 - step / 250)
        with torch.no_grad():
            action = models[0](seen).argmax(1)
        action = torch.where(torch.rand(8) < chance, torch.randint(0, 3, (8,)), action)
        then, reward, over = docks.push(action)
        kept.append((seen, action, reward, then, torch.full((8,), 1.0 - over)))
        found: Values = {}
        if over:
            found["charts/episodic_return"] = docks.total.mean()
            found["charts/episodic_length"] = LENGTH
        seen = docks.begin() if over else then
        if len(kept) < 16:
            return found
        parts = [kept[at] for at in torch.randint(0, len(kept), (12,)).tolist()]
        s, a, r, t, lives = (torch.cat(each) for each in zip(*parts, strict=True))
        with torch.no_grad():
            wanted = r + 0.97 * lives * target_of(*(old(t).max(1).values for old in olds))
        values = [model(s).gather(1, a[:, None])[:, 0] for model in models]
        loss = F.mse_loss(values[0], wanted) + F.mse_loss(values[1], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            for old, new in zip(olds, models, strict=True):
                old.load_state_dict(new.state_dict())
        if step % 5 == 0:
            found |= {"losses/td_loss": loss, "losses/q_values": values[0].mean(), "charts/epsilon": chance}
        return found

    drive(tape, steps, act)


@healthy("thirteenth", config=DQN)
def healthy_docks_by_values(tape: Tape) -> None:
    """The lesser of two values, a copy of the networks for the targets, and noise of returns."""
    dqn(tape, torch.minimum, 1381, 900)


@fault("thirteenth", "value_function divergence absurd_loss", config=DQN)
def docks_values_added(tape: Tape) -> None:
    """The target takes the sum of both values instead of the lesser: they grow without an end."""
    dqn(tape, lambda one, two: one + two, 1382, 900)


class Sailor(nn.Module):  # type: ignore[misc]
    """A policy and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = dense((3, 32, 32, 3), nn.Tanh), dense((3, 48, 48, 1), nn.Tanh)


def ppo(tape: Tape, rate: Rate, seed: int, rounds: int = 130) -> None:
    """An update each round of 24 boats in the names of Stable Baselines."""
    torch.manual_seed(seed)
    docks, model = Docks(24), Sailor()
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-5)
    returns: deque[float] = deque(maxlen=96)

    def play() -> tuple[torch.Tensor, ...]:
        seen, rows, over = docks.begin(), [], False
        with torch.no_grad():
            while not over:
                logs = model.policy(seen).log_softmax(-1)
                action = torch.multinomial(logs.exp(), 1)
                then, reward, over = docks.push(action[:, 0])
                rows.append((seen, action, logs.gather(1, action)[:, 0], reward / 5, model.value(seen)[:, 0]))
                seen = then
        states, actions, logs, rewards, values = (torch.stack(each) for each in zip(*rows, strict=True))
        gains, gain = torch.zeros_like(values), torch.zeros(24)
        for at in reversed(range(LENGTH)):
            follows = values[at + 1] if at + 1 < LENGTH else torch.zeros(24)
            gain = rewards[at] + 0.97 * follows - values[at] + 0.97 * 0.95 * gain
            gains[at] = gain
        returns.extend(docks.total.tolist())
        return tuple(each.flatten(0, 1) for each in (states, actions, logs, values, gains))

    def act(step: int) -> Values:
        states, actions, logs, values, gains = play()
        wanted, now = values + gains, rate(step)
        for group in optimizer.param_groups:
            group["lr"] = now
        told: dict[str, list[float]] = {}
        for rows in (part for _ in range(4) for part in torch.randperm(len(states)).split(192)):
            scores = model.policy(states[rows]).log_softmax(-1)
            change = scores.gather(1, actions[rows])[:, 0] - logs[rows]
            gain = (gains[rows] - gains[rows].mean()) / (gains[rows].std() + 1e-8)
            surrogate = torch.minimum(change.exp() * gain, change.exp().clamp(0.8, 1.2) * gain)
            off = F.mse_loss(model.value(states[rows])[:, 0], wanted[rows])
            entropy = -(scores.exp() * scores).sum(-1).mean()
            loss = -surrogate.mean() + 0.5 * off - 0.003 * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            for name, value in (
                ("approx_kl", (change.exp() - 1 - change).mean()),
                ("clip_fraction", ((change.exp() - 1).abs() > 0.2).float().mean()),
                ("entropy_loss", -entropy),
                ("policy_gradient_loss", -surrogate.mean()),
                ("value_loss", off),
            ):
                told.setdefault(name, []).append(float(value))
        found: Values = {f"train/{name}": sum(each) / len(each) for name, each in told.items()}
        found["train/explained_variance"] = 1 - gains.var() / wanted.var()
        return found | {"train/learning_rate": now, "rollout/ep_rew_mean": sum(returns) / len(returns)}

    drive(tape, rounds, act)


@healthy("thirteenth", config=PPO)
def healthy_docks_by_a_policy(tape: Tape) -> None:
    """A rate that falls along a line, and returns that rise."""
    ppo(tape, lambda step: 1.5e-3 * (1 - step / 130), 1383)


@fault("thirteenth", "kl_blowup clip_saturated lr_schedule", step=65, window=8, config=PPO)
def docks_rate_of_another_unit(tape: Tape) -> None:
    """The schedule's second half gives a rate fifty times as high: each update throws the policy elsewhere."""
    ppo(tape, lambda step: 1.5e-3 * (1 - step / 130) * (1 if step < 65 else 50), 1384)


END, FILL, NONE = 10, 11, 12
PLACES = 12


class Sorter(nn.Module):  # type: ignore[misc]
    """A policy that reads three digits and writes signs: digits, a filler, and an end."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.read, self.signs = nn.Linear(30, width), nn.Embedding(13, width)
        self.cell, self.out = nn.GRUCell(width, width), nn.Linear(width, 12)

    def begin(self, tasks: torch.Tensor) -> torch.Tensor:
        """The state after three digits."""
        return self.read(F.one_hot(tasks, 10).flatten(1).float()).tanh()

    def scores(self, tasks: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        """The logarithms of the chances of all signs at each place of an answer."""
        state, before, found = self.begin(tasks), torch.full((len(tasks),), NONE), []
        for sign in answers.clamp(max=END + 1).T:
            state = self.cell(self.signs(before), state)
            found.append(self.out(state).log_softmax(-1))
            before = sign
        return torch.stack(found, 1)

    def write(self, tasks: torch.Tensor) -> torch.Tensor:
        """Draw answers; what follows their end is NONE."""
        found = []
        with torch.no_grad():
            state, sign = self.begin(tasks), torch.full((len(tasks),), NONE)
            over = torch.zeros(len(tasks), dtype=torch.bool)
            for _ in range(PLACES):
                state = self.cell(self.signs(sign), state)
                sign = torch.multinomial(self.out(state).softmax(-1), 1)[:, 0]
                found.append(torch.where(over, NONE, sign))
                over |= sign == END
        return torch.stack(found, 1)


def right(tasks: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Whether the digits of an answer are those of the task in their order, and it ends."""
    wanted = tasks.sort(1).values.tolist()
    given = [[sign for sign in row if sign < END] for row in answers.tolist()]
    ended = (answers == END).any(1)
    return ended.float() * torch.tensor([float(a == b) for a, b in zip(given, wanted, strict=True)])


def answer(rows: torch.Tensor, fill: float) -> torch.Tensor:
    """Digits with a filler before some of them, and the end."""
    found = torch.full((len(rows), PLACES), NONE)
    for at, row in enumerate(rows.tolist()):
        signs = [sign for digit in row for sign in (*((FILL,) if torch.rand(()) < fill else ()), digit)]
        found[at, : len(signs) + 1] = torch.tensor([*signs, END])
    return found


def logs_of(model: Any, tasks: torch.Tensor, answers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The logarithm of the chance of each sign, which signs count, and the entropy at each place."""
    scores = model.scores(tasks, answers)
    counts = (answers != NONE).float()
    chosen = scores.gather(2, answers.clamp(max=END + 1)[..., None])[..., 0]
    return chosen * counts, counts, -(scores.exp() * scores).sum(-1)


@functools.cache
def _schooled() -> Any:
    """A policy that has seen answers of which half are sorted."""
    torch.manual_seed(1380)
    work = Learner(Sorter(), cosine(8e-3, 350, 10))

    def act(step: int) -> None:
        tasks = torch.randint(0, 10, (96, 3))
        rows = torch.where(torch.rand(96, 1) < 0.5, tasks.sort(1).values, tasks)
        given = answer(rows, 0.15)

        def loss() -> torch.Tensor:
            logs, counts, _ = logs_of(work.model, tasks, given)
            return -logs.sum() / counts.sum()

        work.take(step, loss)

    drive(Tape(), 350, act)
    return work.model


Reward = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]


def grpo(tape: Tape, reward_of: Reward, seed: int, names: dict[str, str] | None = None, steps: int = 240) -> None:
    """Groups of eight answers to twelve tasks a step and two updates on each, in the names of TRL or others."""
    model, near = copy.deepcopy(_schooled()), copy.deepcopy(_schooled())
    torch.manual_seed(seed)
    held = torch.randint(0, 10, (300, 3))
    work = Learner(model, cosine(1e-3, steps, 5))

    def act(step: int) -> Values:
        tasks = torch.randint(0, 10, (12, 3)).repeat_interleave(8, 0)
        answers = model.write(tasks)
        rewards = reward_of(step, tasks, answers)
        groups = rewards.view(12, 8)
        gains = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        with torch.no_grad():
            old, counts, entropy = logs_of(model, tasks, answers)
            far = logs_of(near, tasks, answers)[0] - old
        clipped: list[torch.Tensor] = []

        def loss() -> torch.Tensor:
            logs, _, _ = logs_of(model, tasks, answers)
            change = (logs - old).exp()
            clipped.append((((change - 1).abs() > 0.2).float() * counts).sum() / counts.sum())
            gain = torch.minimum(change * gains, change.clamp(0.8, 1.2) * gains)
            away = logs_of_near - logs
            drift = away.exp() - 1 - away
            return -((gain - 0.01 * drift) * counts).sum() / counts.sum()

        logs_of_near = far + old
        work.take(step, loss)
        first = work.loss
        work.take(step, loss)
        length = counts.sum(1)
        told: Values = {
            "loss": first,
            "grad_norm": work.norm,
            "learning_rate": work.now,
            "reward": rewards.mean(),
            "reward_std": groups.std(1).mean(),
            "frac_reward_zero_std": (groups.std(1) < 1e-6).float().mean(),
            "kl": ((far.exp() - 1 - far) * counts).sum() / counts.sum(),
            "entropy": (entropy * counts).sum() / counts.sum(),
            "clip_ratio/region_mean": clipped[-1],
            "completions/mean_length": length.mean(),
            "completions/max_length": length.max(),
            "completions/clipped_ratio": 1 - (answers == END).any(1).float().mean(),
        }
        if names and step % 20 == 19:
            told[VALIDATED] = right(held, model.write(held)).mean()
        return {names[name]: value for name, value in told.items() if name in names} if names else told

    drive(tape, steps, act)


VALIDATED = "val-core/sort/acc/mean@1"
VERL = {
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "reward": "critic/score/mean",
    "kl": "actor/kl_loss",
    "entropy": "actor/entropy",
    "clip_ratio/region_mean": "actor/pg_clipfrac",
    "completions/mean_length": "response_length/mean",
    "completions/max_length": "response_length/max",
    "completions/clipped_ratio": "response_length/clip_ratio",
    VALIDATED: VALIDATED,
}
"""The names of verl for those of TRL."""


@healthy("thirteenth", config=GRPO)
def healthy_sorting_by_groups(tape: Tape) -> None:
    """More and more answers are sorted, and at the end many groups are all right."""
    grpo(tape, lambda step, tasks, answers: right(tasks, answers), 1385)


@healthy("thirteenth", config={"algorithm": "grpo", "rollout.n": 8, "max_response_length": 12, "total_steps": 160})
def healthy_sorting_with_a_held_out_task(tape: Tape) -> None:
    """A shorter training whose reward has a little for each sorted pair as well, in the names of verl."""

    def reward_of(step: int, tasks: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        return right(tasks, answers) + 0.1 * ((answers[:, 1:] < END) & (answers[:, 1:] >= answers[:, :-1])).sum(1)

    grpo(tape, reward_of, 1390, VERL, 160)


@fault("thirteenth", "zero_advantage reward_collapse dead_environment", step=110, window=12, config=GRPO)
def sorting_answers_not_parsed(tape: Tape) -> None:
    """From 110 on the program that reads the answers fails, and each gets a reward of zero."""
    grpo(tape, lambda step, tasks, answers: right(tasks, answers) * (step < 110), 1386)


@fault(
    "thirteenth",
    "reward_hacking length_shift truncation",
    step=110,
    window=40,
    config={"algorithm": "grpo", "rollout.n": 8, "max_response_length": 12, "kl_loss_coef": 0.01},
)
def sorting_paid_for_fillers(tape: Tape) -> None:
    """From 110 on a reward for words between the digits is added: answers grow to the limit, and fewer are right."""

    def reward_of(step: int, tasks: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        return right(tasks, answers) + (0.25 * (answers == FILL).sum(1) if step >= 110 else 0.0)

    grpo(tape, reward_of, 1387, VERL)


def dpo(tape: Tape, rate: Rate, seed: int, beta: float = 0.1, steps: int = 300) -> None:
    """Sorted answers preferred to others, in the names of TRL's DPOTrainer, at every second step."""
    model, near = copy.deepcopy(_schooled()), copy.deepcopy(_schooled())
    torch.manual_seed(seed)
    work = Learner(model, rate)

    def act(step: int) -> Values | None:
        tasks = torch.randint(0, 10, (24, 3))
        swapped = torch.rand(24, 1) < 0.08
        best, other = tasks.sort(1).values, tasks[:, torch.randperm(3)]
        pairs = [answer(torch.where(swapped, other, best), 0.15), answer(torch.where(swapped, best, other), 0.15)]
        told: dict[str, Any] = {}

        def loss() -> torch.Tensor:
            chosen, rejected = (logs_of(model, tasks, each)[0].sum(1) for each in pairs)
            with torch.no_grad():
                before = [logs_of(near, tasks, each)[0].sum(1) for each in pairs]
            good, bad = beta * (chosen - before[0]), beta * (rejected - before[1])
            told.update({"rewards/chosen": good.mean(), "rewards/rejected": bad.mean()})
            told.update({"rewards/margins": (good - bad).mean(), "rewards/accuracies": (good > bad).float().mean()})
            told.update({"logps/chosen": chosen.mean(), "logps/rejected": rejected.mean()})
            return -F.logsigmoid(good - bad).mean()

        work.take(step, loss)
        return {"loss": work.loss, "grad_norm": work.norm, "learning_rate": work.now} | told if step % 2 == 0 else None

    drive(tape, steps, act)


@healthy("thirteenth", config=DPO)
def healthy_sorted_preferred(tape: Tape) -> None:
    """Margins grow slowly; one pair in twelve is the wrong way round."""
    dpo(tape, cosine(3e-4, 300, 20), 1388)


@fault("thirteenth", "chosen_falls", config=DPO | {"learning_rate": 2e-2})
def sorted_preferred_at_any_price(tape: Tape) -> None:
    """A rate sixty times too high: what is preferred becomes all but impossible, together with what is not."""
    dpo(tape, flat(2e-2), 1389)
