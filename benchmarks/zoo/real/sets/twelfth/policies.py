"""The twelfth set: policies and preferences in the logs of Stable-Baselines3, TRL and verl."""

import copy
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.twelfth.tasks import Decoder, F, Values, corpus, follow, nn, run_steps, windows
from benchmarks.zoo.real.tape import Tape

Score = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Poles:
    """Carts with a pole each; a pole that falls, or stands for 200 steps, is set up again."""

    def __init__(self, count: int) -> None:
        self.state = 0.1 * torch.rand(count, 4) - 0.05
        self.age = torch.zeros(count)
        self.ended = [20.0]

    def act(self, pushes: torch.Tensor) -> torch.Tensor:
        """Push each cart left (0) or right (1), and return which episodes ended."""
        x, speed, angle, turn = self.state.unbind(1)
        sine, cosine = angle.sin(), angle.cos()
        part = (20.0 * pushes - 10.0 + 0.05 * turn * turn * sine) / 1.1
        turned = (9.8 * sine - cosine * part) / (0.5 * (4 / 3 - 0.1 * cosine * cosine / 1.1))
        pushed = part - 0.05 * turned * cosine / 1.1
        moved = (x + 0.02 * speed, speed + 0.02 * pushed, angle + 0.02 * turn, turn + 0.02 * turned)
        self.state = torch.stack(moved, 1)
        self.age += 1
        over = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.21) | (self.age >= 200)
        if over.any():
            self.ended = [*self.ended, *self.age[over].tolist()][-50:]
            self.state[over] = 0.1 * torch.rand(int(over.sum()), 4) - 0.05
            self.age[over] = 0
        return over


def poles(tape: Tape, seed: int, rounds: int = 110) -> None:
    """Poles by PPO, a row for each of its rounds, in the names of Stable-Baselines3."""
    torch.manual_seed(seed)
    actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1), nn.Flatten(0))
    weights = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(weights, 3e-3, eps=1e-5)
    game, length, count = Poles(16), 32, 16

    def act(step: int) -> Values:
        seen, pushes, overs, values = [], [], [], []
        with torch.no_grad(), tape.span("rl.sample"):
            for _ in range(length):
                seen.append(game.state)
                values.append(critic(game.state))
                pushes.append(torch.multinomial(actor(game.state).softmax(1), 1)[:, 0])
                overs.append(game.act(pushes[-1].float()).float())
            values.append(critic(game.state))
            gain, gains = torch.zeros(count), []
            for at in reversed(range(length)):
                stays = 1 - overs[at]
                gain = 1 + 0.98 * values[at + 1] * stays - values[at] + 0.98 * 0.95 * stays * gain
                gains.append(gain)
            before, push = torch.cat(seen), torch.cat(pushes)
            old_values, advantage = torch.cat(values[:-1]), torch.cat(gains[::-1])
            returns = advantage + old_values
            old = actor(before).log_softmax(1).gather(1, push[:, None])[:, 0]
            explained = float(1 - (returns - old_values).var() / returns.var())
        with tape.span("rl.train"):
            rows_of: list[list[float]] = []
            for _ in range(4):
                for rows in torch.randperm(length * count).split(128):
                    log = actor(before[rows]).log_softmax(1)
                    apart = log.gather(1, push[rows, None])[:, 0] - old[rows]
                    ratio, good = apart.exp(), advantage[rows]
                    good = (good - good.mean()) / (good.std() + 1e-8)
                    policy = -torch.min(ratio * good, ratio.clamp(0.8, 1.2) * good).mean()
                    value = F.mse_loss(critic(before[rows]), returns[rows])
                    spread = -(log.exp() * log).sum(1).mean()
                    loss = policy + 0.5 * value
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(weights, 0.5)
                    optimizer.step()
                    far = ((ratio - 1) - apart).mean()
                    clipped = ((ratio - 1).abs() > 0.2).float().mean()
                    rows_of.append([float(each.detach()) for each in (policy, value, spread, far, clipped, loss)])
        policy_loss, value_loss, entropy, kl, share, total = torch.tensor(rows_of).mean(0).tolist()
        found: Values = {"rollout/ep_rew_mean": sum(game.ended) / len(game.ended), "train/loss": total}
        found |= {"rollout/ep_len_mean": found["rollout/ep_rew_mean"], "train/value_loss": value_loss}
        found |= {"train/policy_gradient_loss": policy_loss, "train/entropy_loss": -entropy, "train/approx_kl": kl}
        return found | {
            "train/clip_fraction": share,
            "train/explained_variance": explained,
            "train/learning_rate": 3e-3,
        }

    run_steps(tape, rounds, act)


SB3 = {"algo": "ppo", "env": "CartPole-v0", "n_envs": 16, "n_steps": 32, "n_epochs": 4, "clip_range": 0.2, "lr": 3e-3}


@healthy("twelfth", config=SB3)
def poles_stand(tape: Tape) -> None:
    """Poles by PPO: the return rises with its usual setbacks."""
    poles(tape, 1301)


FILL, END, LONGEST = 10, 11, 24


class Speaker(nn.Module):  # type: ignore[misc]
    """A policy that says signs about the sum of two digits, by what it said last and where it is."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(10, width), nn.Embedding(10, width)
        self.last, self.place = nn.Embedding(12, width), nn.Embedding(LONGEST, width)
        self.net = nn.Sequential(nn.Linear(width, 96), nn.ReLU(), nn.Linear(96, 12))

    def forward(self, prompt: torch.Tensor, said: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """The scores of what is said next."""
        known = self.first(prompt[..., 0]) + self.second(prompt[..., 1])
        return self.net(known + self.last(said) + 0.3 * self.place(place))

    def logs(self, prompt: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        """The logarithms of the chances of all signs, at each place."""
        length = signs.shape[1]
        last = torch.cat((torch.full_like(signs[:, :1], FILL), signs[:, :-1]), 1)
        places = torch.arange(length).expand_as(signs)
        return self(prompt[:, None].expand(-1, length, -1), last, places).log_softmax(-1)

    def say(self, prompt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw completions, and which of their signs count."""
        last, alive = torch.full((len(prompt),), FILL), torch.ones(len(prompt))
        signs, counts = [], []
        for place in range(LONGEST):
            chances = self(prompt, last, torch.full_like(last, place)).softmax(-1)
            last = torch.multinomial(chances, 1)[:, 0]
            signs.append(last)
            counts.append(alive)
            alive = alive * (last != END)
        return torch.stack(signs, 1), torch.stack(counts, 1)


def demonstrations(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Prompts, some filling, an answer that is right in two of five, and the end."""
    prompt = torch.randint(0, 10, (count, 2))
    answer = torch.where(torch.rand(count) < 0.33, prompt.sum(1) % 10, torch.randint(0, 10, (count,)))
    length = torch.randint(1, 6, (count, 1))
    place = torch.arange(LONGEST)
    signs = torch.where(place == length, answer[:, None], torch.where(place > length, END, FILL))
    return prompt, signs, (place <= length + 1).float()


def right(signs: torch.Tensor, counts: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
    """Whether a completion ends, with the right digit before its end."""
    length = counts.sum(1).long()
    ended = signs.gather(1, length[:, None] - 1)[:, 0] == END
    before = signs.gather(1, (length[:, None] - 2).clamp(min=0))[:, 0]
    return (ended & (before == prompt.sum(1) % 10)).float()


def grpo(
    tape: Tape,
    seed: int,
    told: Callable[[dict[str, torch.Tensor]], Values],
    bonus: Score | None = None,
    broken_at: int | None = None,
    rate: Callable[[int], float] = lambda step: 1.5e-3,
    steps: int = 220,
) -> None:
    """Sums by rewards of groups of eight, two updates to a batch, from a policy that was shown what to say."""
    torch.manual_seed(seed)
    model = Speaker()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(150):
        prompt, signs, counts = demonstrations(96)
        log = model.logs(prompt, signs).gather(2, signs[..., None])[..., 0]
        optimizer.zero_grad()
        (-(log * counts).sum() / counts.sum()).backward()
        optimizer.step()
    reference = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def act(step: int) -> Values:
        lr = follow(optimizer, rate(step))
        with tape.span("rl.sample"), torch.no_grad():
            prompt = torch.randint(0, 10, (12, 2)).repeat_interleave(8, 0)
            signs, counts = model.say(prompt)
        hits = right(signs, counts, prompt)
        score = hits if bonus is None else hits + bonus(signs, counts)
        if broken_at is not None and step >= broken_at:
            hits, score = torch.zeros_like(hits), torch.zeros_like(hits)
        groups = score.view(-1, 8)
        spread = groups.std(1, keepdim=True)
        advantage = ((groups - groups.mean(1, keepdim=True)) / (spread + 1e-4)).view(-1, 1)
        with tape.span("rl.train"):
            with torch.no_grad():
                old = model.logs(prompt, signs).gather(2, signs[..., None])[..., 0]
                known = reference.logs(prompt, signs).gather(2, signs[..., None])[..., 0]
            for _ in range(2):
                log_all = model.logs(prompt, signs)
                log = log_all.gather(2, signs[..., None])[..., 0]
                ratio = (log - old).exp()
                gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                far = (known - log).exp() - 1 - (known - log)
                loss = ((0.02 * far - gain) * counts).sum() / counts.sum()
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            with torch.no_grad():
                after = model.logs(prompt, signs).gather(2, signs[..., None])[..., 0]
        total, lengths = counts.sum(), counts.sum(1)
        cut = (lengths == LONGEST) & (signs[:, -1] != END)
        entropy = -(log_all.exp() * log_all).sum(-1)
        return told(
            {
                "loss": loss.detach(),
                "norm": norm,
                "lr": torch.tensor(lr),
                "score": score,
                "hits": hits,
                "lengths": lengths,
                "cut": cut.float(),
                "spread": spread,
                "advantage": advantage,
                "entropy": (entropy.detach() * counts).sum() / total,
                "far": (far.detach() * counts).sum() / total,
                "moved": ((old - after) * counts).sum() / total,
                "clipped": ((((after - old).exp() - 1).abs() > 0.2) * counts).sum() / total,
            }
        )

    run_steps(tape, steps, act)


def trl(seen: dict[str, torch.Tensor]) -> Values:
    """The names of TRL."""
    found = {"loss": seen["loss"], "grad_norm": seen["norm"], "learning_rate": seen["lr"], "kl": seen["far"]}
    found |= {"reward": seen["score"].mean(), "reward_std": seen["spread"].mean(), "entropy": seen["entropy"]}
    found["rewards/accuracy_reward/mean"] = seen["hits"].mean()
    found["frac_reward_zero_std"] = (seen["spread"] < 1e-6).float().mean()
    found |= {"completions/mean_length": seen["lengths"].mean(), "completions/clipped_ratio": seen["cut"].mean()}
    return {name: float(value) for name, value in found.items()}


def verl(seen: dict[str, torch.Tensor]) -> Values:
    """The names of verl."""
    found = {"actor/pg_loss": seen["loss"], "actor/grad_norm": seen["norm"], "actor/lr": seen["lr"]}
    found |= {"actor/ppo_kl": seen["moved"], "actor/pg_clipfrac": seen["clipped"], "actor/entropy": seen["entropy"]}
    found |= {"critic/score/mean": seen["score"].mean(), "critic/rewards/mean": seen["score"].mean()}
    found |= {"critic/advantages/mean": seen["advantage"].mean(), "response_length/mean": seen["lengths"].mean()}
    found["response_length/clip_ratio"] = seen["cut"].mean()
    return {name: float(value) for name, value in found.items()}


TRL = {"num_generations": 8, "max_completion_length": 24, "beta": 0.02, "learning_rate": 1.5e-3, "num_iterations": 2}
VERL = {"algorithm.adv_estimator": "grpo", "actor.optim.lr": 1.5e-3, "actor.clip_ratio": 0.2, "rollout.n": 8}


@healthy("twelfth", config=TRL)
def sums_by_rewards(tape: Tape) -> None:
    """The share of right sums rises."""
    grpo(tape, 1311, trl)


@fault(
    "twelfth",
    "reward_hacking truncation length_shift",
    config=TRL | {"reward_funcs": ["accuracy_reward", "reasoning_reward"]},
)
def sums_paid_by_the_sign(tape: Tape) -> None:
    """A second reward pays each sign that is said: completions grow to the limit and answer no more."""
    grpo(tape, 1312, trl, bonus=lambda signs, counts: 0.15 * counts.sum(1))


@fault("twelfth", "reward_collapse dead_environment zero_advantage", step=140, window=15, config=TRL)
def sums_that_nobody_checks(tape: Tape) -> None:
    """From 140 on the checker cannot be reached and every completion has a reward of zero."""
    grpo(tape, 1313, trl, broken_at=140)


@fault(
    "twelfth",
    "kl_blowup lr_schedule reward_collapse entropy_collapse clip_saturated",
    step=130,
    window=15,
    config=VERL,
)
def sums_at_thirty_times_the_rate(tape: Tape) -> None:
    """At 130 the learning rate is taken from another settings file: each update goes thirty times as far."""
    grpo(tape, 1314, verl, rate=lambda step: 1.5e-3 if step < 130 else 45e-3)


def sequence_logs(model: Any, rows: torch.Tensor) -> torch.Tensor:
    """The logarithm of the chance of each row."""
    log = model(rows[:, :-1]).log_softmax(-1)
    return log.gather(2, rows[:, 1:, None])[..., 0].sum(1)


def preferences(tape: Tape, seed: int, rate: float, anchor: float, steps: int = 160) -> None:
    """Pairs of a piece and one with wrong letters, one in ten swapped, after 150 steps on the text."""
    torch.manual_seed(seed)
    text = corpus()
    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3)
    for _ in range(150):
        given, wanted = windows(text, 8, 32)
        optimizer.zero_grad()
        F.cross_entropy(model(given).flatten(0, 1), wanted.flatten()).backward()
        optimizer.step()
    reference = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), rate)

    def act(step: int) -> Values:
        lr = follow(optimizer, rate * min(1.0, (step + 1) / 10))
        good = windows(text, 10, 24)[0]
        bad = torch.where(torch.rand(good.shape) < 0.15, torch.randint(0, 27, good.shape), good)
        swapped = torch.rand(10, 1) < 0.1
        pair = torch.cat((torch.where(swapped, bad, good), torch.where(swapped, good, bad)))
        with torch.no_grad():
            known = sequence_logs(reference, pair)
        logs = sequence_logs(model, pair)
        chosen, rejected = (0.1 * (logs - known)).chunk(2)
        loss = -F.logsigmoid(chosen - rejected).mean() - anchor * logs[:10].mean() / 23
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found = {"loss": loss, "learning_rate": lr, "grad_norm": norm, "rewards/chosen": chosen.mean()}
        found |= {"rewards/rejected": rejected.mean(), "rewards/margins": (chosen - rejected).mean()}
        found["rewards/accuracies"] = (chosen > rejected).float().mean()
        found |= {"logps/chosen": logs[:10].mean(), "logps/rejected": logs[10:].mean()}
        return {
            name: float(value.detach() if isinstance(value, torch.Tensor) else value) for name, value in found.items()
        }

    run_steps(tape, steps, act)


@healthy(
    "twelfth", config={"loss_type": "sigmoid", "beta": 0.1, "rpo_alpha": 0.2, "learning_rate": 3e-4, "warmup_steps": 10}
)
def preferences_learned(tape: Tape) -> None:
    """Margins rise a little and most pairs are ordered as they should be."""
    preferences(tape, 1321, 3e-4, anchor=0.2)


@fault(
    "twelfth",
    "chosen_falls divergence not_learning",
    config={"loss_type": "sigmoid", "beta": 0.1, "learning_rate": 1e-2, "warmup_steps": 10},
)
def preferences_at_a_pretraining_rate(tape: Tape) -> None:
    """The learning rate is that of pretraining: what is chosen becomes as unlikely as what is rejected."""
    preferences(tape, 1322, 1e-2, anchor=0.0)
