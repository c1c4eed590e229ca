"""A policy gradient with clipping on a small environment, under the names of Stable-Baselines3."""

from collections.abc import Callable

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.tape import Tape

PLACES, ACTIONS, LENGTH, WORLDS = 9, 3, 20, 32


class Ppo:
    """Walks on a line towards a goal that it sees; a fault changes it at an iteration."""

    def __init__(self, lr: float = 3e-3, entropy: float = 0.01) -> None:
        nn = torch.nn
        self.policy = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, ACTIONS))
        self.value = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.value_optimizer = torch.optim.Adam(self.value.parameters(), lr=0.02)
        self.entropy, self.reward_scale, self.epochs = entropy, 1.0, 4
        self.value_updates, self.noise = True, 0.3

    def play(self) -> tuple[torch.Tensor, ...]:
        """Observations, actions, log-probabilities, returns, and the mean reward of an episode."""
        place = torch.randint(0, PLACES, (WORLDS,)).float()
        goal = torch.randint(0, PLACES, (WORLDS,)).float()
        seen, done, chances, gained = [], [], [], []
        for _ in range(LENGTH):
            observed = torch.stack([place / PLACES, goal / PLACES], 1)
            chosen = torch.distributions.Categorical(logits=self.policy(observed))
            action = chosen.sample()
            place = (place + action.float() - 1).clamp(0, PLACES - 1)
            seen.append(observed)
            done.append(action)
            chances.append(chosen.log_prob(action))
            gained.append(1.0 - (place - goal).abs() / 4 + self.noise * torch.randn(WORLDS))
        total, returns = torch.zeros(WORLDS), []
        for reward in reversed(gained):
            total = self.reward_scale * reward + 0.9 * total
            returns.insert(0, total)
        episode = self.reward_scale * torch.stack(gained).sum(0).mean()
        return torch.cat(seen), torch.cat(done), torch.cat(chances), torch.cat(returns), episode

    def fit(self, run: Tape, steps: int = 260, at: Callable[["Ppo", int], None] | None = None) -> None:
        """Train."""
        for step in range(steps):
            if at is not None:
                at(self, step)
            with run.step(step):
                with run.span("rl.sample"), torch.no_grad():
                    seen, done, before, returns, episode = self.play()
                with run.span("rl.train"):
                    values = self._update(seen, done, before, returns)
                run.log({"rollout/ep_rew_mean": episode.item(), "rollout/ep_len_mean": LENGTH, **values})

    def _update(
        self, seen: torch.Tensor, done: torch.Tensor, before: torch.Tensor, returns: torch.Tensor
    ) -> dict[str, float]:
        for _ in range(self.epochs):
            chosen = torch.distributions.Categorical(logits=self.policy(seen))
            value = self.value(seen).squeeze(1)
            advantage = returns - value.detach()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            ratio = (chosen.log_prob(done) - before).exp()
            policy_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            value_loss = torch.nn.functional.mse_loss(value, returns)
            entropy = chosen.entropy().mean()
            loss = policy_loss + 0.5 * value_loss * self.value_updates - self.entropy * entropy
            for each in (self.optimizer, self.value_optimizer):
                each.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
            for each in (self.optimizer, self.value_optimizer):
                each.step()
        log_ratio = ratio.log()
        explained = 1 - (returns - value).var() / returns.var()
        return {
            "train/approx_kl": ((log_ratio.exp() - 1) - log_ratio).mean().item(),
            "train/clip_fraction": ((ratio - 1).abs() > 0.2).float().mean().item(),
            "train/entropy_loss": -entropy.item(),
            "train/explained_variance": explained.item(),
            "train/learning_rate": self.optimizer.param_groups[0]["lr"],
            "train/loss": loss.item(),
            "train/policy_gradient_loss": policy_loss.item(),
            "train/value_loss": value_loss.item(),
        }


@healthy("ppo")
def plain(run: Tape) -> None:
    """Learns to walk to its goal."""
    torch.manual_seed(0)
    Ppo().fit(run)


@healthy("ppo")
def one_epoch(run: Tape) -> None:
    """One update per batch: the clip fraction is always 0."""
    torch.manual_seed(1)
    ppo = Ppo()
    ppo.epochs = 1
    ppo.fit(run)


@healthy("ppo")
def noisy(run: Tape) -> None:
    """Rewards with a lot of noise."""
    torch.manual_seed(2)
    ppo = Ppo(lr=2e-3)
    ppo.noise = 3.0
    ppo.fit(run, 320)


@healthy("ppo")
def no_bonus(run: Tape) -> None:
    """No entropy bonus: the policy becomes sure of itself while the reward rises."""
    torch.manual_seed(3)
    Ppo(lr=2e-3, entropy=0.0).fit(run, 300)


@fault("ppo", "reward_collapse entropy_explosion", 170, window=20)
def policy_destroyed(run: Tape) -> None:
    """The last layer of the policy is drawn anew and points the wrong way."""
    torch.manual_seed(1)

    def at(ppo: Ppo, step: int) -> None:
        if step >= 170:
            with torch.no_grad():
                ppo.policy[2].weight.normal_(0, 0.3)  # type: ignore[union-attr, operator]

    Ppo().fit(run, 260, at)


@fault("ppo", "entropy_collapse", 60, window=40)
def entropy_punished(run: Tape) -> None:
    """The sign of the entropy bonus is wrong from iteration 60 on, and large."""
    torch.manual_seed(2)

    def at(ppo: Ppo, step: int) -> None:
        ppo.entropy = -2.0 if step >= 60 else 0.01

    Ppo(lr=2e-3).fit(run, 260, at)


@fault("ppo", "entropy_explosion reward_collapse", 150, window=40)
def entropy_rewarded(run: Tape) -> None:
    """The entropy bonus is a thousand times too high from iteration 150 on."""
    torch.manual_seed(3)

    def at(ppo: Ppo, step: int) -> None:
        ppo.entropy = 10.0 if step >= 150 else 0.01

    Ppo().fit(run, 260, at)


@fault("ppo", "value_function level_shift spike", 150, window=30)
def rewards_rescaled(run: Tape) -> None:
    """Rewards are thirty times as large from iteration 150 on: the value function is lost."""
    torch.manual_seed(4)

    def at(ppo: Ppo, step: int) -> None:
        ppo.reward_scale = 30.0 if step >= 150 else 1.0

    Ppo().fit(run, 260, at)


@fault("ppo", "value_function level_shift", 140, window=40)
def value_destroyed(run: Tape) -> None:
    """The value network is destroyed and not trained any more."""
    torch.manual_seed(5)

    def at(ppo: Ppo, step: int) -> None:
        if step == 140:
            ppo.value_updates = False
            with torch.no_grad():
                ppo.value[4].weight.normal_(0, 5.0)  # type: ignore[union-attr, operator]

    Ppo().fit(run, 260, at)


@fault("ppo", "dead_environment reward_collapse", 150, window=30)
def environment_dead(run: Tape) -> None:
    """The environment returns no reward any more."""
    torch.manual_seed(6)

    def at(ppo: Ppo, step: int) -> None:
        ppo.reward_scale = 0.0 if step >= 150 else 1.0

    Ppo().fit(run, 260, at)


@fault("ppo", "kl_blowup lr_schedule", 150, window=20)
def rate_too_high(run: Tape) -> None:
    """The learning rate is fifty times as high from iteration 150 on."""
    torch.manual_seed(7)

    def at(ppo: Ppo, step: int) -> None:
        if step == 150:
            for group in ppo.optimizer.param_groups:
                group["lr"] *= 50

    Ppo().fit(run, 260, at)
