"""The seventh set's policies: groups of answers, a point that is steered, a walk with values, a bandit, preferences."""

import copy
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.seventh.tasks import F, Pair, Values, dense, drive, learn, nn, set_rate
from benchmarks.zoo.real.tape import Tape

Reward = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
LONG, END = 8, 12


class Speaker(torch.nn.Module):  # type: ignore[misc]
    """Answers a question, which is a number below 12, with up to eight tokens and an end."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.said = nn.Embedding(12, 32), nn.Embedding(14, 16)
        self.cell, self.head = nn.GRUCell(16, 32), nn.Linear(32, 13)

    def score(self, asked: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        """Logarithms of the chances of all tokens at each place of an answer."""
        state, given, found = self.asked(asked), torch.full_like(asked, 13), []
        for at in range(said.shape[1]):
            state = self.cell(self.said(given), state)
            found.append(self.head(state))
            given = said[:, at]
        return torch.stack(found, 1).log_softmax(-1)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def answer(self, asked: torch.Tensor) -> torch.Tensor:
        """Sampled answers; after an end come only ends."""
        state, given, said = self.asked(asked), torch.full_like(asked, 13), []
        for _ in range(LONG):
            state = self.cell(self.said(given), state)
            drawn = torch.multinomial(self.head(state).softmax(-1), 1)[:, 0]
            given = torch.where(given == END, given, drawn)
            said.append(given)
        return torch.stack(said, 1)


def right_share(asked: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    """1 where the answer begins with the number that is wanted, a half where it comes second."""
    wanted = (5 * asked + 3) % 12
    return (said[:, 0] == wanted).float() + 0.5 * ((said[:, 0] != wanted) & (said[:, 1] == wanted)).float()


def usual(step: int, asked: torch.Tensor, said: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """A right answer that ends soon."""
    return right_share(asked, said) + 0.2 * (lengths < 5)


def groups(
    tape: Tape,
    reward: Reward = usual,
    steps: int = 300,
    rate: Callable[[int], float] = lambda step: 3e-3,
    bonus: Callable[[int], float] = lambda step: 0.01,
    near: Callable[[int], float] = lambda step: 0.02,
) -> None:
    """Eight answers to each of eight questions, compared within their group; names as TRL's trainer logs them."""
    torch.manual_seed(41)
    policy = Speaker()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    reference = copy.deepcopy(policy)

    def act(step: int) -> Values:
        set_rate(optimizer, rate(step))
        asked = torch.randint(0, 12, (8,)).repeat_interleave(8)
        said = policy.answer(asked)
        told = torch.cat([torch.ones(64, 1), (said[:, :-1] != END).float()], 1)
        lengths = told.sum(1)
        rewards = reward(step, asked, said, lengths).view(8, 8)
        spread = rewards.std(1)
        gains = ((rewards - rewards.mean(1, keepdim=True)) / (spread[:, None] + 1e-3)).view(-1, 1)
        chances = policy.score(asked, said)
        own = chances.gather(2, said[..., None])[..., 0]
        with torch.no_grad():
            old = reference.score(asked, said).gather(2, said[..., None])[..., 0]
        away = (old - own).exp() - (old - own) - 1
        unsure = ((-(chances.exp() * chances).sum(-1)) * told).sum() / told.sum()
        loss = ((-gains * own + near(step) * away) * told).sum() / told.sum() - bonus(step) * unsure
        norm = learn(optimizer, loss, 1.0)
        values = {"reward": rewards.mean(), "reward_std": spread.mean(), "kl": (away * told).sum() / told.sum()}
        values |= {"entropy": unsure, "grad_norm": norm, "completions/mean_length": lengths.mean()}
        if step % 25 == 24:
            values["eval/accuracy"] = (right_share(asked, said) == 1).float().mean()
        return values

    drive(tape, steps, act)


@healthy("seventh")
def healthy_groups(tape: Tape) -> None:
    """The reward rises with noise; answers grow short since that is wanted."""
    groups(tape)


@fault("seventh", "reward_collapse dead_environment zero_advantage level_shift constant", step=200)
def groups_parser_broken(tape: Tape) -> None:
    """The verifier is updated and wants another format: every answer has a reward of zero from then on."""
    groups(tape, lambda step, *row: usual(step, *row) if step < 200 else torch.zeros(64), near=lambda step: 0.1)


@fault("seventh", "reward_hacking length_shift level_shift accuracy_drop reward_collapse", step=180, window=60)
def groups_phrase_pays(tape: Tape) -> None:
    """A learnt judge replaces the verifier; it likes a phrase: the reward rises, the accuracy falls."""

    def reward(step: int, asked: torch.Tensor, said: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        if step < 180:
            return usual(step, asked, said, lengths)
        return 0.1 * lengths + 0.2 * (said == 7).sum(1) + 0.1 * torch.randn(64)

    groups(tape, reward, steps=330)


@fault("seventh", "entropy_collapse zero_advantage reward_collapse length_shift", step=30, window=60)
def groups_entropy_punished(tape: Tape) -> None:
    """The bonus for entropy has the wrong sign: all answers are alike within 40 steps, and wrong."""
    groups(tape, bonus=lambda step: -0.6, near=lambda step: 0.0, rate=lambda step: 4e-3)


class Point:
    """Points on a line that are pushed towards zero, with friction and wind, in episodes of 20 pushes."""

    def __init__(self, count: int = 32) -> None:
        self.count = count
        self.reset()

    def reset(self) -> None:
        """Begin a new episode at random places."""
        self.place, self.speed = 2 * torch.randn(self.count), torch.zeros(self.count)

    def seen(self) -> torch.Tensor:
        """What the policy sees."""
        return torch.stack([self.place, self.speed], 1)

    def push(self, force: torch.Tensor) -> torch.Tensor:
        """Move, and return the rewards."""
        self.speed = 0.8 * self.speed + 0.3 * force.clamp(-3, 3) + 0.05 * torch.randn(self.count)
        self.place = self.place + self.speed
        return -self.place.abs().clamp_max(5) - 0.05 * force**2


def steer(
    tape: Tape,
    steps: int = 300,
    rate: Callable[[int], float] = lambda step: 2e-3,
    passes: Callable[[int], int] = lambda step: 2,
) -> None:
    """Proximal updates of a policy that pushes a point, with the names of Stable-Baselines."""
    torch.manual_seed(42)
    actor, critic, spread = dense((2, 32, 1), nn.Tanh), dense((2, 32, 1), nn.Tanh), nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), spread], lr=2e-3)
    world = Point()

    def act(step: int) -> Values:
        set_rate(optimizer, rate(step))
        world.reset()
        seen, forces, rewards = [], [], []
        with torch.no_grad():
            for _ in range(20):
                seen.append(world.seen())
                forces.append(actor(seen[-1])[:, 0] + spread.exp() * torch.randn(world.count))
                rewards.append(world.push(forces[-1]))
        returns: list[torch.Tensor] = []
        ahead = torch.zeros(world.count)
        for each in reversed(rewards):
            ahead = 0.1 * each + 0.95 * ahead
            returns.insert(0, ahead)
        given, taken, wanted = torch.cat(seen), torch.cat(forces), torch.cat(returns)
        with torch.no_grad():
            before = torch.distributions.Normal(actor(given)[:, 0], spread.exp()).log_prob(taken)
            known = critic(given)[:, 0]
        explained = 1 - (wanted - known).var() / wanted.var()
        gains = (wanted - known - (wanted - known).mean()) / ((wanted - known).std() + 1e-6)
        for _ in range(passes(step)):
            for rows in torch.randperm(len(given)).chunk(2):
                chances = torch.distributions.Normal(actor(given[rows])[:, 0], spread.exp())
                change = chances.log_prob(taken[rows]) - before[rows]
                held = torch.minimum(change.exp() * gains[rows], change.exp().clamp(0.8, 1.2) * gains[rows])
                off = F.mse_loss(critic(given[rows])[:, 0], wanted[rows])
                learn(optimizer, 0.5 * off - held.mean() - 0.001 * spread.sum(), 0.5)
        return {
            "rollout/ep_rew_mean": torch.stack(rewards).sum(0).mean(),
            "train/approx_kl": ((change.exp() - 1) - change).mean(),
            "train/clip_fraction": ((change.exp() - 1).abs() > 0.2).float().mean(),
            "train/explained_variance": explained,
            "train/value_loss": off,
        }

    drive(tape, steps, act)


@healthy("seventh")
def healthy_steering(tape: Tape) -> None:
    """Returns vary with where the points start."""
    steer(tape)


@fault("seventh", "kl_blowup clip_saturated level_shift", step=150, window=30)
def steering_too_many_passes(tape: Tape) -> None:
    """A sweep changes the running configuration: six passes over each rollout, at fifteen times the rate."""
    steer(
        tape,
        rate=lambda step: 2e-3 if step < 150 else 0.03,
        passes=lambda step: 2 if step < 150 else 6,
    )


def walk(tape: Tape, steps: int = 500) -> None:
    """Find the way through a grid of 5 by 5 by values of actions, with a buffer and a network that follows slowly."""
    torch.manual_seed(43)
    model = dense((25, 48, 4))
    follower = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    moves = torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]])
    places, played = torch.zeros(12, 2, dtype=torch.long), torch.zeros(12)
    stored: list[tuple[torch.Tensor, ...]] = []
    totals = [0.0]

    def index(place: torch.Tensor) -> torch.Tensor:
        return F.one_hot(place[:, 0] * 5 + place[:, 1], 25).float()

    def act(step: int) -> Values:
        epsilon = max(0.15, 1 - step / 300)
        with torch.no_grad():
            chosen = model(index(places)).argmax(1)
        chosen = torch.where(torch.rand(12) < epsilon, torch.randint(0, 4, (12,)), chosen)
        after = (places + moves[chosen]).clamp(0, 4)
        found = (after == 4).all(1)
        rewards = found.float() - 0.02
        played[:] += 1
        stored.append((index(places), chosen, rewards, index(after), found.float()))
        del stored[:-300]
        for row in (found | (played >= 40)).nonzero()[:, 0].tolist():
            totals.append(float(found[row]) - 0.02 * float(played[row]))
            after[row], played[row] = torch.randint(0, 4, (2,)), 0
        places[:] = after
        batch = [
            torch.cat(each) for each in zip(*[stored[at] for at in torch.randint(0, len(stored), (5,))], strict=True)
        ]
        with torch.no_grad():
            wanted = batch[2] + 0.92 * (1 - batch[4]) * follower(batch[3]).max(1).values
        values = model(batch[0]).gather(1, batch[1][:, None])[:, 0]
        loss = F.smooth_l1_loss(values, wanted)
        learn(optimizer, loss, 10.0)
        if step % 10 == 0:
            follower.load_state_dict(model.state_dict())
        mean = sum(totals[-20:]) / len(totals[-20:])
        return {"charts/episodic_return": mean, "losses/td_loss": loss, "losses/q_values": values.mean()}

    drive(tape, steps, act)


@healthy("seventh")
def healthy_walk(tape: Tape) -> None:
    """Nothing is found for a while; then the return rises as fewer steps are taken at random."""
    walk(tape)


@healthy("seventh")
def healthy_bandit(tape: Tape) -> None:
    """A policy gradient on eight arms that depend on what is seen; the reward of a step is almost only noise."""
    torch.manual_seed(44)
    arms, policy = torch.randn(6, 8), dense((6, 8))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    usual_reward = [0.0]

    def act(step: int) -> Values:
        seen = torch.randn(6, 6)
        chances = policy(seen).log_softmax(1)
        drawn = torch.multinomial(chances.exp(), 1)
        rewards = (seen @ arms).gather(1, drawn)[:, 0] + 2 * torch.randn(6)
        loss = -((rewards - usual_reward[0]) * chances.gather(1, drawn)[:, 0]).mean()
        usual_reward[0] += 0.05 * (float(rewards.mean()) - usual_reward[0])
        learn(optimizer, loss)
        return {"policy_loss": loss, "mean_reward": rewards.mean(), "entropy": -(chances.exp() * chances).sum(1).mean()}

    drive(tape, 500, act)


def prefer(
    tape: Tape,
    steps: int = 350,
    rate: float = 4e-3,
    same: bool = False,
) -> None:
    """Direct preferences between two answers of six tokens, with the names that TRL logs."""
    torch.manual_seed(45)
    policy = dense((16, 48, 72))
    liked = torch.randn(16, 6, 12)
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=rate)
    reference = policy if same else copy.deepcopy(policy)

    def batch() -> tuple[torch.Tensor, Pair]:
        asked = torch.randint(0, 16, (24,))
        both = torch.randint(0, 12, (24, 2, 6))
        worth = liked[asked][:, None].expand(24, 2, 6, 12).gather(3, both[..., None])[..., 0].sum(2)
        better = (worth + 1.0 * torch.randn(24, 2)).argmax(1)
        rows = torch.arange(24)
        return F.one_hot(asked, 16).float(), (both[rows, better], both[rows, 1 - better])

    def chance(model: Any, asked: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(asked).view(-1, 6, 12).log_softmax(2).gather(2, said[..., None])[..., 0].sum(1)
        return found

    def act(step: int) -> Values | None:
        asked, (chosen, rejected) = batch()
        good, bad = chance(policy, asked, chosen), chance(policy, asked, rejected)
        base = [chance(reference, asked, said) for said in (chosen, rejected)]
        if not same:
            base = [each.detach() for each in base]
        first, second = 0.5 * (good - base[0]), 0.5 * (bad - base[1])
        loss = -F.logsigmoid(first - second).mean()
        norm = learn(optimizer, loss)
        values = {"loss": loss, "grad_norm": norm, "rewards/accuracies": (first > second).float().mean()}
        values |= {"rewards/margins": (first - second).mean(), "logps/chosen": good.mean()}
        return values if step % 2 == 0 else None

    drive(tape, steps, act)


@healthy("seventh")
def healthy_preferences(tape: Tape) -> None:
    """Half of the choices are hardly better than the others, so that the accuracy ends near 0.8."""
    prefer(tape)


@fault("seventh", "not_learning constant plateau weights_frozen vanishing_gradients")
def preferences_of_itself(tape: Tape) -> None:
    """The reference is the policy itself and not a copy of it: all margins are zero, and the loss is ln 2 for ever."""
    prefer(tape, same=True, steps=300)
