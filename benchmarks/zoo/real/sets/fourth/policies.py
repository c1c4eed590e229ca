"""Of the fourth set: PPO and DQN on a pole, a soft actor-critic on a plane, and GRPO with short answers."""

from collections import deque
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fourth.tasks import Values, perceptron, trained, updated
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


class Poles:
    """Carts that balance a pole, all at once; an episode ends when it falls, or after 200 steps."""

    def __init__(self, count: int) -> None:
        self.state = self._fresh(count)
        self.age = torch.zeros(count)
        self.lengths: deque[float] = deque([20.0], maxlen=40)

    def _fresh(self, count: int) -> torch.Tensor:
        return (torch.rand(count, 4) - 0.5) * 0.1

    def act(self, actions: torch.Tensor) -> torch.Tensor:
        """Push left or right; return which episodes ended."""
        place, speed, angle, turn = self.state.unbind(1)
        force = actions.float() * 20 - 10
        sine, cosine = angle.sin(), angle.cos()
        pull = (force + 0.05 * turn.square() * sine) / 1.1
        turning = (9.8 * sine - cosine * pull) / (0.5 * (4 / 3 - 0.1 * cosine.square() / 1.1))
        moving = pull - 0.05 * turning * cosine / 1.1
        parts = (place + 0.02 * speed, speed + 0.02 * moving, angle + 0.02 * turn, turn + 0.02 * turning)
        self.state = torch.stack(parts, 1)
        self.age += 1
        ended = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.21) | (self.age >= 200)
        self.lengths.extend(self.age[ended].tolist())
        self.state = torch.where(ended[:, None], self._fresh(len(ended)), self.state)
        self.age = torch.where(ended, torch.zeros_like(self.age), self.age)
        return ended.float()

    @property
    def mean(self) -> float:
        """The mean length of the last episodes, which is their reward."""
        return sum(self.lengths) / len(self.lengths)


class Proximal:
    """PPO with the names of Stable-Baselines3."""

    def __init__(self, lr: float = 2e-3, epochs: int = 4, clip: float = 0.2, sign: float = 1.0, seed: int = 61) -> None:
        torch.manual_seed(seed)
        self.poles = Poles(16)
        self.policy, self.value = perceptron((4, 32, 32, 2)), perceptron((4, 32, 32, 1))
        self.optimizer = torch.optim.Adam([*self.policy.parameters(), *self.value.parameters()], lr=lr)
        self.epochs, self.clip, self.sign = epochs, clip, sign

    def _collect(self) -> tuple[torch.Tensor, ...]:
        states, actions, ends = [], [], []
        with torch.no_grad():
            for _ in range(32):
                states.append(self.poles.state)
                actions.append(torch.distributions.Categorical(logits=self.policy(self.poles.state)).sample())
                ends.append(self.poles.act(actions[-1]))
            values = self.value(torch.stack([*states, self.poles.state])).squeeze(-1)
        gains, last = torch.zeros(32, 16), torch.zeros(16)
        for at in reversed(range(32)):
            error = 1.0 + 0.98 * values[at + 1] * (1 - ends[at]) - values[at]
            last = gains[at] = error + 0.98 * 0.95 * (1 - ends[at]) * last
        flat = torch.stack(states).flatten(0, 1), torch.stack(actions).flatten(), gains.flatten()
        return *flat, values[:-1].flatten()

    def step(self, step: int) -> Values:
        """Collect, learn, and return what is logged."""
        states, actions, gains, values = self._collect()
        wanted, normal = gains + values, (gains - gains.mean()) / (gains.std() + 1e-8)
        with torch.no_grad():
            before = torch.distributions.Categorical(logits=self.policy(states)).log_prob(actions)
        logged: Values = {}
        for _ in range(self.epochs):
            for rows in torch.randperm(512).split(128):
                policy = torch.distributions.Categorical(logits=self.policy(states[rows]))
                change = policy.log_prob(actions[rows]) - before[rows]
                ratio = change.exp()
                limited = ratio.clamp(1 - self.clip, 1 + self.clip)
                gain = -self.sign * torch.minimum(ratio * normal[rows], limited * normal[rows]).mean()
                error = F.mse_loss(self.value(states[rows]).squeeze(1), wanted[rows])
                loss = gain + 0.5 * error - 0.001 * policy.entropy().mean()
                updated(loss, self.optimizer, 0.5)
                logged = {
                    "train/approx_kl": ((ratio - 1) - change).mean().detach(),
                    "train/clip_fraction": ((ratio - 1).abs() > self.clip).float().mean(),
                    "train/entropy_loss": -policy.entropy().mean().detach(),
                    "train/policy_gradient_loss": gain.detach(),
                    "train/value_loss": error.detach(),
                    "train/loss": loss.detach(),
                }
        explained = 1 - (wanted - values).var() / (wanted.var() + 1e-8)
        reward = {"rollout/ep_rew_mean": self.poles.mean, "rollout/ep_len_mean": self.poles.mean}
        return {**reward, **logged, "train/explained_variance": explained}


@fault("fourth", "kl_blowup clip_saturated entropy_collapse reward_collapse")
def policy_rate_too_high(tape: Tape) -> None:
    """PPO with a rate of 0.05 and 10 epochs on each batch: "my KL is 0.3 and the reward goes down"."""
    trained(tape, 70, Proximal(lr=0.05, epochs=10).step, learning_rate=0.05, n_epochs=10, clip_range=0.2)


@fault("fourth", "reward_collapse dead_environment entropy_collapse not_learning")
def policy_sign_flipped(tape: Tape) -> None:
    """The gain is minimised: the sign of the policy's loss is wrong."""
    trained(tape, 90, Proximal(sign=-1.0).step, learning_rate=2e-3)


@healthy("fourth")
def healthy_policy(tape: Tape) -> None:
    """PPO that learns to balance."""
    trained(tape, 110, Proximal().step, learning_rate=2e-3, n_epochs=4, clip_range=0.2)


class Choices:
    """DQN with a replay buffer; `ends` says whether the value after the end of an episode is 0."""

    def __init__(self, *, ends: bool = True, discount: float = 0.98, lr: float = 1e-3) -> None:
        torch.manual_seed(62)
        self.poles = Poles(8)
        self.network, self.target = perceptron((4, 48, 48, 2)), perceptron((4, 48, 48, 2))
        self.target.load_state_dict(self.network.state_dict())
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=lr)
        self.rows: deque[tuple[torch.Tensor, ...]] = deque(maxlen=1500)
        self.ends, self.discount, self.updates = ends, discount, 0

    def _play(self, chance: float) -> None:
        before = self.poles.state
        with torch.no_grad():
            best = self.network(before).argmax(1)
        actions = torch.where(torch.rand(8) < chance, torch.randint(0, 2, (8,)), best)
        ended = self.poles.act(actions)
        self.rows.append((before, actions, ended, self.poles.state))

    def step(self, step: int) -> Values:
        """Play four steps, learn four times."""
        chance = max(0.05, 1 - step / 150)
        for _ in range(4):
            self._play(chance)
        loss = q = torch.zeros(())
        for _ in range(4):
            drawn = [self.rows[at] for at in torch.randint(0, len(self.rows), (12,)).tolist()]
            before, actions, ended, after = (torch.cat(each) for each in zip(*drawn, strict=True))
            with torch.no_grad():
                ahead = self.target(after).max(1).values * ((1 - ended) if self.ends else 1.0)
            q = self.network(before).gather(1, actions[:, None]).squeeze(1)
            loss = F.smooth_l1_loss(q, 1.0 + self.discount * ahead)
            updated(loss, self.optimizer, 10.0)
            self.updates += 1
            if self.updates % 40 == 0:
                self.target.load_state_dict(self.network.state_dict())
        logged = {"train/loss": loss.detach(), "train/q_mean": q.mean().detach(), "rollout/exploration_rate": chance}
        return {**logged, "rollout/ep_rew_mean": self.poles.mean}


@fault("fourth", "divergence value_function norm_growth reward_collapse not_learning absurd_loss exploding_gradients")
def ends_ignored(tape: Tape) -> None:
    """The value after the end of an episode is not set to 0, and nothing is discounted: values grow for ever."""
    trained(tape, 300, Choices(ends=False, discount=1.0).step, gamma=1.0)


@healthy("fourth")
def healthy_choices(tape: Tape) -> None:
    """DQN that learns to balance, with all its ups and downs."""
    trained(tape, 300, Choices().step, gamma=0.98)


class Soft:
    """A soft actor-critic that steers points to the middle of a plane."""

    def __init__(self, sign: float = 1.0) -> None:
        torch.manual_seed(63)
        self.actor, self.critic, self.slow = (
            perceptron((2, 48, 4)),
            perceptron((4, 64, 64, 1)),
            perceptron((4, 64, 64, 1)),
        )
        self.slow.load_state_dict(self.critic.state_dict())
        self.heat = nn.Parameter(torch.tensor(-1.0))
        self.acts = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.judges = torch.optim.Adam(self.critic.parameters(), lr=2e-3)
        self.heats = torch.optim.Adam([self.heat], lr=1e-2)
        self.rows: deque[tuple[torch.Tensor, ...]] = deque(maxlen=200)
        self.sign, self.state, self.age = sign, torch.randn(32, 2), 0
        self.total, self.episodes = torch.zeros(32), deque([-30.0], maxlen=5)

    def _drawn(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = self.actor(state).chunk(2, 1)
        normal = torch.distributions.Normal(mean, spread.clamp(-5, 2).exp())
        raw = normal.rsample()
        action = raw.tanh()
        return action, (normal.log_prob(raw) - (1 - action.square() + 1e-6).log()).sum(1)

    def _play(self) -> None:
        with torch.no_grad():
            action, _ = self._drawn(self.state)
        after = (self.state + 0.3 * action).clamp(-3, 3)
        reward = -after.norm(dim=1)
        self.rows.append((self.state, action, reward, after))
        self.state, self.total, self.age = after, self.total + reward, self.age + 1
        if self.age == 20:
            self.episodes.append(self.total.mean().item())
            self.state, self.total, self.age = torch.randn(32, 2), torch.zeros(32), 0

    def step(self, step: int) -> Values:
        """Play two steps, learn twice."""
        logged: Values = {}
        for _ in range(2):
            self._play()
            drawn = [self.rows[at] for at in torch.randint(0, len(self.rows), (4,)).tolist()]
            before, action, reward, after = (torch.cat(each) for each in zip(*drawn, strict=True))
            heat = self.heat.detach().exp()
            with torch.no_grad():
                then, likely = self._drawn(after)
                wanted = reward + 0.95 * (self.slow(torch.cat([after, then], 1)).squeeze(1) - heat * likely)
            error = F.mse_loss(self.critic(torch.cat([before, action], 1)).squeeze(1), wanted)
            updated(error, self.judges)
            chosen, likely = self._drawn(before)
            gain = (heat * likely - self.critic(torch.cat([before, chosen], 1)).squeeze(1)).mean()
            updated(gain, self.acts)
            heating = -self.sign * (self.heat * (likely.detach() - 2.0)).mean()
            updated(heating, self.heats)
            with torch.no_grad():
                for slow, fast in zip(self.slow.parameters(), self.critic.parameters(), strict=True):
                    slow.lerp_(fast, 0.02)
            logged = {"train/actor_loss": gain.detach(), "train/critic_loss": error.detach(), "train/ent_coef": heat}
            logged["train/ent_coef_loss"] = heating.detach()
        return {**logged, "rollout/ep_rew_mean": sum(self.episodes) / len(self.episodes)}


@fault(
    "fourth", "divergence entropy_explosion absurd_loss reward_collapse exploding_gradients value_function norm_growth"
)
def temperature_runs_away(tape: Tape) -> None:
    """The loss of the entropy coefficient has the wrong sign: the further from its target, the further it goes."""
    trained(tape, 250, Soft(sign=-1.0).step, ent_coef="auto")


@healthy("fourth")
def healthy_soft(tape: Tape) -> None:
    """A soft actor-critic that learns."""
    trained(tape, 250, Soft().step, ent_coef="auto")


END, LIMIT = 10, 12


class Writer(nn.Module):
    """Writes digits after a digit, until it writes an end."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(11, 32), nn.GRU(32, 48, batch_first=True), nn.Linear(48, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token at each place."""
        return self.head(self.cell(self.embed(tokens))[0])  # type: ignore[no-any-return]

    @torch.no_grad()
    def write(self, prompts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Answers, and which of their tokens count."""
        tokens, alive = prompts[:, None], torch.ones(len(prompts), dtype=torch.bool)
        counts = []
        for _ in range(LIMIT):
            drawn = torch.distributions.Categorical(logits=self(tokens)[:, -1]).sample()
            counts.append(alive)
            tokens = torch.cat([tokens, torch.where(alive, drawn, END)[:, None]], 1)
            alive = alive & (drawn != END)
        return tokens, torch.stack(counts, 1).float()


class Groups:
    """GRPO: eight answers to each of eight prompts; the answer to n is n + 1."""

    def __init__(self, reward: str = "right", lr: float = 3e-3) -> None:
        torch.manual_seed(64)
        self.writer, self.reference = Writer(), Writer()
        self.reference.load_state_dict(self.writer.state_dict())
        self.optimizer = torch.optim.AdamW(self.writer.parameters(), lr=lr)
        self.reward, self.lr = reward, lr

    def _rewarded(self, tokens: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        right = ((tokens[:, 1] == (tokens[:, 0] + 1) % 10) & (tokens[:, 1] != END)).float()
        if self.reward == "never":
            return torch.zeros_like(right), right
        if self.reward == "length":
            return right + 0.15 * counts.sum(1), right
        return right - 0.02 * counts.sum(1), right

    def step(self) -> dict[str, Any]:
        """Write, judge, learn, and return everything that could be logged."""
        prompts = torch.randint(0, 10, (8,)).repeat_interleave(8)
        tokens, counts = self.writer.write(prompts)
        rewards, right = self._rewarded(tokens, counts)
        groups = rewards.view(8, 8)
        spread = groups.std(1, keepdim=True)
        gains = ((groups - groups.mean(1, keepdim=True)) / (spread + 1e-4)).flatten()
        scores = self.writer(tokens[:, :-1]).log_softmax(2)
        chosen = scores.gather(2, tokens[:, 1:, None]).squeeze(2)
        with torch.no_grad():
            known = self.reference(tokens[:, :-1]).log_softmax(2).gather(2, tokens[:, 1:, None]).squeeze(2)
        apart = (known - chosen).exp() - (known - chosen) - 1
        total = counts.sum()
        loss = ((-(chosen - chosen.detach()).exp() * gains[:, None] + 0.01 * apart) * counts).sum() / total
        norm = updated(loss, self.optimizer, 1.0)
        entropy = -((scores.exp() * scores).sum(2) * counts).sum() / total
        return {
            "loss": loss.detach(),
            "reward": rewards.mean(),
            "spread": spread.mean(),
            "flat": (spread < 1e-6).float().mean(),
            "length": counts.sum(1).mean(),
            "cut": ((counts.sum(1) == LIMIT) & (tokens[:, -1] != END)).float().mean(),
            "kl": (apart.detach() * counts).sum() / total,
            "entropy": entropy.detach(),
            "norm": norm,
            "right": right.mean(),
        }


def _as_trl(task: Groups) -> Any:
    def train(step: int) -> Values:
        seen = task.step()
        values = {key: seen[key] for key in ("loss", "reward", "kl", "entropy")}
        values |= {"reward_std": seen["spread"], "frac_reward_zero_std": seen["flat"], "grad_norm": seen["norm"]}
        values |= {"completions/mean_length": seen["length"], "completions/clipped_ratio": seen["cut"]}
        return values | {"learning_rate": task.lr}

    return train


def _as_verl(task: Groups) -> Any:
    def train(step: int) -> Values:
        seen = task.step()
        values = {"actor/pg_loss": seen["loss"], "actor/entropy": seen["entropy"], "actor/grad_norm": seen["norm"]}
        values |= {"critic/score/mean": seen["reward"], "critic/rewards/mean": seen["reward"], "actor/lr": task.lr}
        return values | {"response_length/mean": seen["length"], "response_length/clip_ratio": seen["cut"]}

    return train


@fault("fourth", "dead_environment zero_advantage reward_collapse not_learning")
def answers_never_parsed(tape: Tape) -> None:
    """The answer is compared as text with a number: every reward is 0."""
    trained(tape, 150, _as_trl(Groups("never")), num_generations=8)


@fault("fourth", "truncation length_shift reward_hacking")
def longer_is_better(tape: Tape) -> None:
    """The reward adds something for each token: answers grow to the limit."""
    trained(tape, 160, _as_verl(Groups("length")), max_response_length=LIMIT)


@healthy("fourth")
def healthy_groups(tape: Tape) -> None:
    """GRPO that learns to add, and to stop."""
    trained(tape, 160, _as_trl(Groups()), num_generations=8)


@healthy("fourth")
def healthy_noisy_groups(tape: Tape) -> None:
    """The same with a small rate, under verl's names: a reward that is mostly noise."""
    trained(tape, 150, _as_verl(Groups(lr=8e-4)), max_response_length=LIMIT)
