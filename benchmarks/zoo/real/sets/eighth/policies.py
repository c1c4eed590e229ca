"""Agents and tuned writers, logged as CleanRL, Stable-Baselines3 and TRL do."""

import copy
import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.seventh.tasks import F, Values, dense, drive, learn, nn, set_rate
from benchmarks.zoo.real.tape import Tape

D = torch.distributions
COUNT = 24
"""How many worlds run beside each other."""


class World(Protocol):
    """Worlds beside each other, all of which end after the same number of moves."""

    moves: int
    seen: int
    outputs: int

    def reset(self) -> None:
        """Begin an episode."""

    def observe(self) -> torch.Tensor:
        """What can be seen now."""

    def choice(self, found: torch.Tensor, spread: torch.Tensor) -> Any:
        """What the network's answer means as a distribution over moves."""

    def move(self, act: torch.Tensor) -> torch.Tensor:
        """Move all, and return the rewards."""


class Catch:
    """A ball falls down seven columns; the paddle below goes left, stays or goes right, and may slip."""

    moves, seen, outputs = 7, 15, 3

    def reset(self) -> None:
        """Drop a ball."""
        self.at, self.paddle, self.ball = 0, torch.randint(0, 7, (COUNT,)), torch.randint(0, 7, (COUNT,))

    def observe(self) -> torch.Tensor:
        """The columns of both, and the height."""
        height = torch.full((COUNT, 1), self.at / 7)
        return torch.cat([F.one_hot(self.ball, 7), F.one_hot(self.paddle, 7), height], 1).float()

    def choice(self, found: torch.Tensor, spread: torch.Tensor) -> Any:
        """One of three."""
        return D.Categorical(logits=found)

    def move(self, act: torch.Tensor) -> torch.Tensor:
        """One row down; in one of six cases the wind blows the ball aside."""
        self.at += 1
        self.paddle = (self.paddle + act - 1).clamp(0, 6)
        self.ball = (self.ball + (torch.rand(COUNT) < 0.17) * (2 * torch.randint(0, 2, (COUNT,)) - 1)).clamp(0, 6)
        return (1 - 2 * (self.paddle != self.ball).float()) * (self.at == self.moves)


class Glide:
    """A sledge on ice is pushed towards a place; the reward is how near it stays."""

    moves, seen, outputs = 10, 3, 1

    def reset(self) -> None:
        """Stand still somewhere."""
        self.at, self.speed, self.goal = torch.randn(COUNT), torch.zeros(COUNT), torch.randn(COUNT)

    def observe(self) -> torch.Tensor:
        """Where it is, how fast, and where it should be."""
        return torch.stack([self.at, self.speed, self.goal], 1)

    def choice(self, found: torch.Tensor, spread: torch.Tensor) -> Any:
        """A push around the answer."""
        return D.Normal(found[:, 0], spread.exp())

    def move(self, act: torch.Tensor) -> torch.Tensor:
        """Push."""
        self.speed = 0.7 * self.speed + 0.5 * act.clamp(-2, 2)
        self.at = self.at + self.speed
        return -(self.at - self.goal).abs()


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one update of PPO."""

    reward: float
    policy: torch.Tensor
    value: torch.Tensor
    entropy: torch.Tensor
    kl: torch.Tensor
    clipped: torch.Tensor
    explained: torch.Tensor
    spread: torch.Tensor
    rate: float


def play(tape: Tape, world: World, updates: int, rate: Any, called: dict[str, str], seed: int) -> None:
    """Improve by PPO with three passes; `called` names what is logged."""
    torch.manual_seed(seed)
    policy, judge = dense((world.seen, 32, world.outputs), nn.Tanh), dense((world.seen, 32, 1), nn.Tanh)
    spread = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam([*policy.parameters(), *judge.parameters(), spread], eps=1e-5)

    def act(update: int) -> Values:
        now = set_rate(optimizer, rate(update))
        world.reset()
        seen, acts, rewards = [], [], []
        with torch.no_grad():
            for _ in range(world.moves):
                seen.append(world.observe())
                acts.append(world.choice(policy(seen[-1]), spread).sample())
                rewards.append(world.move(acts[-1]))
        known, done, paid = torch.cat(seen), torch.cat(acts), torch.stack(rewards)
        left = paid.flip(0).cumsum(0).flip(0).flatten()
        with torch.no_grad():
            guess = judge(known)[:, 0]
            before = world.choice(policy(known), spread).log_prob(done)
        better = left - guess
        better = (better - better.mean()) / (better.std() + 1e-8)
        for _ in range(3):
            choice = world.choice(policy(known), spread)
            change = choice.log_prob(done) - before
            ratio = change.exp()
            gain = torch.minimum(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
            missed, entropy = F.mse_loss(judge(known)[:, 0], left), choice.entropy().mean()
            learn(optimizer, 0.5 * missed - gain - 0.003 * entropy, 0.5)
        explained = 1 - (left - guess).var() / left.var()
        kl, clipped = (ratio - 1 - change).mean(), ((ratio - 1).abs() > 0.2).float().mean()
        found = Played(float(paid.sum(0).mean()), -gain, missed, entropy, kl, clipped, explained, spread.exp(), now)
        return {name: getattr(found, part) for part, name in called.items()}

    drive(tape, updates, act)


CLEANRL = {
    "reward": "charts/episodic_return",
    "rate": "charts/learning_rate",
    "value": "losses/value_loss",
    "policy": "losses/policy_loss",
    "entropy": "losses/entropy",
    "kl": "losses/approx_kl",
    "clipped": "losses/clipfrac",
    "explained": "losses/explained_variance",
}
STABLE = {
    "reward": "rollout/ep_rew_mean",
    "kl": "train/approx_kl",
    "clipped": "train/clip_fraction",
    "explained": "train/explained_variance",
    "rate": "train/learning_rate",
    "policy": "train/policy_gradient_loss",
    "value": "train/value_loss",
    "spread": "train/std",
}


@healthy("eighth")
def healthy_cleanrl_catch(tape: Tape) -> None:
    """Balls are caught more and more often; wind and small batches make the return noisy, with dips that recover."""
    play(tape, Catch(), 350, lambda update: 0.004 * (1 - update / 350), CLEANRL, 51)


@fault(
    "eighth",
    "kl_blowup clip_saturated reward_collapse lr_schedule entropy_collapse level_shift value_function"
    " entropy_explosion",
    step=200,
    window=25,
)
def stable_baselines_schedule_reversed(tape: Tape) -> None:
    """The second phase has a schedule by steps done where the library gives what is left: the rate is 0.3."""
    play(tape, Glide(), 340, lambda update: 0.3 if update >= 200 else 0.003 * (1 - update / 400), STABLE, 52)


class Phrases(torch.nn.Module):  # type: ignore[misc]
    """A recurrent writer of up to 10 words, of which zero ends the phrase; it is given a topic."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.topics, self.words = nn.Embedding(8, width), nn.Embedding(13, width)
        self.inner, self.head = nn.GRUCell(width, width), nn.Linear(width, 12)

    def write(self, topics: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Phrases, and which of their words count."""
        hidden, last = self.topics(topics), torch.full_like(topics, 12)
        words, open_ = [], [torch.ones(len(topics))]
        for _ in range(10):
            hidden = self.inner(self.words(last), hidden)
            last = D.Categorical(logits=self.head(hidden)).sample()
            words.append(last)
            open_.append(open_[-1] * (last != 0))
        return torch.stack(words, 1), torch.stack(open_[:-1], 1)

    def forward(self, topics: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Logarithms of the chances of all words at each place."""
        hidden, last, rows = self.topics(topics), torch.full_like(topics, 12), []
        for place in range(words.shape[1]):
            hidden = self.inner(self.words(last), hidden)
            rows.append(self.head(hidden))
            last = words[:, place]
        return torch.stack(rows, 1).log_softmax(-1)


def chosen(scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """The logarithms for the words that were written."""
    return scores.gather(-1, words[..., None])[..., 0]


def taught(seed: int) -> tuple[Phrases, Any]:
    """A writer that has seen a few phrases on each topic, and a copy that stays as it is."""
    torch.manual_seed(seed)
    model = Phrases()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        topics = torch.randint(0, 8, (64,))
        words = torch.randint(1, 12, (64, 10)) * (torch.arange(10) < torch.randint(4, 9, (64, 1)))
        words[:, 0] = torch.where(torch.rand(64) < 0.5, topics + 1, words[:, 0])
        learn(optimizer, -chosen(model(topics, words), words)[:, :9].mean())
    return model, copy.deepcopy(model).requires_grad_(False)


@dataclass(frozen=True, slots=True)
class Written:
    """A batch of phrases and what they were worth."""

    reward: torch.Tensor
    spread: torch.Tensor
    length: torch.Tensor
    cut: torch.Tensor
    kl: torch.Tensor
    entropy: torch.Tensor
    loss: torch.Tensor


def improve(model: Phrases, fixed: Any, optimizer: Any, worth: Any, weight: float) -> Written:
    """One update by the relative worth within groups of six, held to the fixed writer by a weight."""
    topics = torch.randint(0, 8, (8,)).repeat_interleave(6)
    with torch.no_grad():
        words, counts = model.write(topics)
        reward = worth(topics, words, counts)
    groups = reward.view(8, 6)
    better = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 0.1)).flatten()
    scores = model(topics, words)
    with torch.no_grad():
        known = chosen(fixed(topics, words), words)
    own = chosen(scores, words)
    away = (known - own).exp() - (known - own) - 1
    loss = ((-(own - own.detach()).exp() * better[:, None] + weight * away) * counts).sum() / counts.sum()
    learn(optimizer, loss, 1.0)
    entropy = (-(scores.exp() * scores).sum(-1) * counts).sum() / counts.sum()
    ended = (words == 0).any(1)
    kl = ((own - known) * counts).sum(1).mean().detach()
    return Written(
        reward.mean(), groups.std(1).mean(), counts.sum(1).mean(), 1 - ended.float().mean(), kl, entropy, loss
    )


def said(topics: torch.Tensor, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """How many times the topic's word is there, as a part of all words."""
    hits = ((words == topics[:, None] + 1) * counts).sum(1)
    return (hits.clamp_max(2) / 2 - 0.05 * (counts.sum(1) - 5).clamp_min(0)).clamp_min(-1)


def group(tape: Tape, updates: int, per_line_from: int | None = None) -> None:
    """GRPO in TRL's names; from an update on every line earns the reward for its form."""
    model, fixed = taught(53)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)

    def act(update: int) -> Values:
        wrong = per_line_from is not None and update >= per_line_from

        def worth(topics: torch.Tensor, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
            return said(topics, words, counts) + (0.25 * counts.sum(1) if wrong else 0.0)

        found = improve(model, fixed, optimizer, worth, 0.04)
        return {
            "loss": found.loss,
            "reward": found.reward,
            "reward_std": found.spread,
            "completions/mean_length": found.length,
            "completions/clipped_ratio": found.cut,
            "kl": found.kl,
            "entropy": found.entropy,
        }

    drive(tape, updates, act)


@healthy("eighth")
def healthy_trl_groups(tape: Tape) -> None:
    """The topic is named more often, phrases become a little shorter, and the distance to the first writer grows."""
    group(tape, 200)


@fault("eighth", "reward_hacking length_shift truncation level_shift kl_blowup kl_drift", step=100, window=40)
def trl_form_paid_by_the_line(tape: Tape) -> None:
    """The reward for form is given once for each line since a change of the parser: it writes up to the limit."""
    group(tape, 200, per_line_from=100)


def feedback(tape: Tape, updates: int, weight: Any) -> None:
    """RLHF in the names of TRL's PPO: a judge with a weakness, and a weight that holds the writer back."""
    model, fixed = taught(54)
    taste = torch.randn(12)
    taste[7] = 3.0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)

    def worth(topics: torch.Tensor, words: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        liked = (taste[words] * counts).sum(1) / (counts.sum(1) + 2)
        return liked + 2 * said(topics, words, counts)

    def act(update: int) -> Values:
        found = improve(model, fixed, optimizer, worth, weight(update))
        return {
            "objective/kl": found.kl,
            "objective/entropy": found.entropy * found.length,
            "objective/scores": found.reward,
            "objective/rlhf_reward": found.reward - weight(update) * found.kl,
            "loss/policy_avg": found.loss,
            "policy/entropy_avg": found.entropy,
        }

    drive(tape, updates, act)


@healthy("eighth")
def healthy_rlhf_held_back(tape: Tape) -> None:
    """Scores rise and then stay, as does the distance to the first writer."""
    feedback(tape, 200, lambda update: 0.4)


@fault(
    "eighth",
    "reward_hacking kl_blowup kl_drift entropy_collapse level_shift",
    step=100,
    window=50,
)
def rlhf_weight_lost(tape: Tape) -> None:
    """The adaptive weight of the distance ran to zero after a restart: only the judge's favourite word is written."""
    feedback(tape, 200, lambda update: 0.4 if update < 100 else 0.0)


def prefer(tape: Tape, rate: float, steps: int = 400) -> None:
    """DPO in TRL's names, each fourth step: phrases with the topic's word are preferred in eight of nine cases."""
    model, fixed = taught(55)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)

    def act(step: int) -> Values:
        set_rate(optimizer, rate * min(1.0, (step + 1) / 30) * (1 - step / steps))
        topics = torch.randint(0, 8, (24,))
        good, bad = torch.randint(1, 12, (2, 24, 6))
        good[:, 1] = topics + 1
        swapped = torch.rand(24, 1) < 0.11
        good, bad = torch.where(swapped, bad, good), torch.where(swapped, good, bad)
        own = [chosen(model(topics, words), words).sum(1) for words in (good, bad)]
        with torch.no_grad():
            known = [chosen(fixed(topics, words), words).sum(1) for words in (good, bad)]
        paid = [0.1 * (now - then) for now, then in zip(own, known, strict=True)]
        margin = paid[0] - paid[1]
        loss = -F.logsigmoid(margin).mean()
        norm = learn(optimizer, loss, math.inf)
        return {} if step % 4 else {
            "loss": loss,
            "grad_norm": norm,
            "rewards/chosen": paid[0].mean(),
            "rewards/rejected": paid[1].mean(),
            "rewards/margins": margin.mean(),
            "rewards/accuracies": (margin > 0).float().mean(),
            "logps/chosen": own[0].mean(),
            "logps/rejected": own[1].mean(),
        }  # fmt: skip

    drive(tape, steps, act)


@healthy("eighth")
def healthy_dpo_with_noise(tape: Tape) -> None:
    """One pair in nine is the wrong way round; margins grow slowly, and both rewards sink a little."""
    prefer(tape, 0.0006)


@fault("eighth", "margin_explosion chosen_falls kl_blowup kl_drift overfit")
def dpo_rate_of_pretraining(tape: Tape) -> None:
    """The rate was that of pretraining, a hundred times too high: both answers become ever less likely."""
    prefer(tape, 0.06)
