"""The third set, policies and answers: groups of answers, preferences, a chain of states."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.journal_tapes import user_run
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
WORDS, BEGIN, END = 12, 12, 11
Reward = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]


class Writer(nn.Module):
    """Writes words, one after the other."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(WORDS + 1, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of the next words."""
        return self.head(self.cell(self.embed(words))[0])  # type: ignore[no-any-return]

    @torch.no_grad()
    def written(self, count: int, length: int) -> torch.Tensor:
        """Answers after the word that begins them."""
        words = torch.full((count, 1), BEGIN)
        for _ in range(length):
            chosen = torch.distributions.Categorical(logits=self(words)[:, -1]).sample()
            words = torch.cat([words, chosen[:, None]], 1)
        return words

    def likely(self, words: torch.Tensor) -> torch.Tensor:
        """The log-probability of each word."""
        known: torch.Tensor = self(words[:, :-1]).log_softmax(-1)
        return known.gather(-1, words[:, 1:, None])[..., 0]


def even(update: int, answers: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The share of even words."""
    return ((answers % 2 == 0) & (answers < 10)).float().mean(1)


def _lengths(answers: torch.Tensor) -> torch.Tensor:
    ends = (answers == END).float()
    return torch.where(ends.sum(1) > 0, ends.argmax(1), torch.full((len(answers),), answers.shape[1])).float()


def groups(
    tape: Tape, updates: int = 160, lr: float = 1e-3, kl_weight: float = 0.02, reward: Reward = even,
    entropy_weight: float = 0.0, length: int = 8,
) -> None:  # fmt: skip
    """Groups of eight answers that are compared with each other (GRPO), with the names of TRL."""
    torch.manual_seed(0)
    policy, reference = Writer(), Writer()
    reference.load_state_dict(policy.state_dict())
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    config = {"learning_rate": lr, "beta": kl_weight, "num_generations": 8, "max_completion_length": length}
    with user_run(tape, **config) as run:
        for update in range(updates):
            with run.step(update):
                with run.span("generate"):
                    words = policy.written(64, length)
                lengths = _lengths(words[:, 1:])
                rewards = reward(update, words[:, 1:], lengths)
                by_group = rewards.view(8, 8)
                spread = by_group.std(1, keepdim=True)
                better = ((by_group - by_group.mean(1, keepdim=True)) / (spread + 1e-4)).flatten()
                with run.span("update"):
                    known = policy(words[:, :-1]).log_softmax(-1)
                    own = known.gather(-1, words[:, 1:, None])[..., 0]
                    apart = reference.likely(words).detach() - own
                    kl = (apart.exp() - 1 - apart).mean()
                    entropy = -(known.exp() * known).sum(-1).mean()
                    gain = ((own - own.detach()).exp() * better[:, None]).mean()
                    loss = kl_weight * kl - gain - entropy_weight * entropy
                    optimizer.zero_grad()
                    loss.backward()
                    norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                    optimizer.step()
                values = {"loss": loss, "grad_norm": norm, "learning_rate": lr, "kl": kl, "entropy": entropy}
                values |= {"reward": rewards.mean(), "reward_std": spread.mean()}
                values["completions/mean_length"] = lengths.mean()
                values["frac_reward_zero_std"] = (spread < 1e-6).float().mean()
                run.log(values, category="trainer")


def preferences(tape: Tape, lr: float = 2e-3, beta: float = 0.1, swapped: int | None = None) -> None:
    """Pairs of answers, of which the one with more even words is usually chosen (DPO)."""
    torch.manual_seed(0)
    policy, reference = Writer(), Writer()
    reference.load_state_dict(policy.state_dict())
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    with user_run(tape, beta=beta, learning_rate=lr) as run:
        for step in range(300):
            begin = torch.full((32, 1), BEGIN)
            one, other = (torch.cat([begin, torch.randint(0, 10, (32, 6))], 1) for _ in range(2))
            scores = [(each[:, 1:] % 2 == 0).sum(1) + 0.8 * torch.randn(32) for each in (one, other)]
            wins = (scores[0] > scores[1]) != (swapped is not None and step >= swapped)
            chosen, rejected = torch.where(wins[:, None], one, other), torch.where(wins[:, None], other, one)
            with run.step(step):
                likely = [policy.likely(each).sum(1) for each in (chosen, rejected)]
                with torch.no_grad():
                    usual = [reference.likely(each).sum(1) for each in (chosen, rejected)]
                better, worse = (beta * (a - b) for a, b in zip(likely, usual, strict=True))
                loss = -F.logsigmoid(better - worse).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                values: dict[str, Any] = {"loss": loss, "learning_rate": lr}
                values |= {"rewards/chosen": better.mean(), "rewards/rejected": worse.mean()}
                values |= {"rewards/margins": (better - worse).mean()}
                values |= {"rewards/accuracies": (better > worse).float().mean()}
                values |= {"logps/chosen": likely[0].mean(), "logps/rejected": likely[1].mean()}
                run.log(values, category="trainer")


def chain(tape: Tape, reward: float = 1.0, states: int = 8) -> None:
    """A walk along a chain whose last state is rewarded, learnt with a target network that is renewed."""
    torch.manual_seed(0)
    values, target = (nn.Sequential(nn.Linear(states, 32), nn.ReLU(), nn.Linear(32, 2)) for _ in range(2))
    target.load_state_dict(values.state_dict())
    optimizer = torch.optim.Adam(values.parameters(), lr=1e-3)
    place = torch.eye(states)
    seen: list[tuple[int, int, float, int, float]] = []
    returns, state, gained, moves = [0.0], 0, 0.0, 0
    with user_run(tape, gamma=0.95, lr=1e-3, target_update=50) as run:
        for step in range(700):
            with run.step(step):
                chance = max(0.1, 1 - step / 300)
                for _ in range(4):
                    guess = torch.rand(()) < chance
                    action = int(torch.randint(0, 2, ())) if guess else int(values(place[state]).argmax())
                    after = min(states - 1, state + 1) if action else max(0, state - 1)
                    done = after == states - 1
                    seen.append((state, action, reward * done, after, float(done)))
                    state, gained, moves = after, gained + reward * done, moves + 1
                    if done or moves > 40:
                        returns.append(gained)
                        state, gained, moves = 0, 0.0, 0
                drawn = [seen[at] for at in torch.randint(0, len(seen), (32,)).tolist()]
                here, acted, gains, there, over = (torch.tensor(each) for each in zip(*drawn, strict=True))
                with torch.no_grad():
                    wanted = gains.float() + 0.95 * (1 - over) * target(place[there]).max(1).values
                known = values(place[here]).gather(1, acted[:, None])[:, 0]
                loss = F.smooth_l1_loss(known, wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 50 == 0:
                    target.load_state_dict(values.state_dict())
                found = {"td_loss": loss, "q_mean": known.mean(), "epsilon": chance}
                run.log(found | {"episode_return": sum(returns[-20:]) / len(returns[-20:])}, category="trainer")


@healthy("third")
def healthy_groups(tape: Tape) -> None:
    """As it should be."""
    groups(tape)


@healthy("third")
def healthy_groups_entropy_bonus(tape: Tape) -> None:
    """With a bonus for entropy."""
    groups(tape, entropy_weight=0.02, kl_weight=0.05)


@healthy("third")
def healthy_preferences(tape: Tape) -> None:
    """As it should be."""
    preferences(tape, lr=5e-4)


@fault("third", "zero_advantage dead_environment constant reward_collapse not_learning")
def groups_zero_advantage(tape: Tape) -> None:
    """Every reward is 0."""
    groups(tape, lr=5e-3, updates=120, reward=lambda update, answers, lengths: torch.zeros(len(answers)))


@fault("third", "entropy_collapse zero_advantage")
def groups_rate_too_high(tape: Tape) -> None:
    """The learning rate is fifty times too high, without a KL term: the task is solved at once."""
    groups(tape, lr=5e-2, kl_weight=0.0, updates=120)


@fault("third", "chosen_falls accuracy_drop level_shift spike divergence")
def preferences_swapped(tape: Tape) -> None:
    """Chosen and rejected are exchanged from step 150 on."""
    preferences(tape, swapped=150)


@healthy("third")
def healthy_chain(tape: Tape) -> None:
    """As it should be."""
    chain(tape)


@fault("third", "dead_environment constant reward_collapse not_learning value_function")
def chain_without_reward(tape: Tape) -> None:
    """The reward is never given."""
    chain(tape, reward=0.0)
