"""GRPO and DPO on a small model of sequences, under the names of TRL and verl."""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.tape import Tape

TOKENS, PROMPTS, GROUP, MOST = 12, 16, 8, 8
END = 0


class Writer(torch.nn.Module):
    """Writes the next token from the prompt, the last token and the place."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.prompt = torch.nn.Embedding(TOKENS, width)
        self.last = torch.nn.Embedding(TOKENS + 1, width)
        self.place = torch.nn.Embedding(MOST, width)
        self.out = torch.nn.Sequential(torch.nn.Linear(width, 48), torch.nn.Tanh(), torch.nn.Linear(48, TOKENS))

    def forward(self, prompt: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of every place, given the tokens before."""
        before = torch.cat([torch.full_like(tokens[:, :1], TOKENS), tokens[:, :-1]], 1)
        places = self.place(torch.arange(tokens.shape[1]))
        return self.out(self.prompt(prompt)[:, None] + self.last(before) + places)


def chances(model: Writer, prompt: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each token, and entropy of each place."""
    logs = model(prompt, tokens).log_softmax(-1)
    return logs.gather(2, tokens[..., None]).squeeze(2), -(logs.exp() * logs).sum(-1)


class Grpo:
    """Answers must repeat the prompt's token and then end; a fault changes it at a step."""

    def __init__(self, lr: float = 4e-3) -> None:
        self.model, self.reference = Writer(), Writer()
        self.reference.load_state_dict(self.model.state_dict())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.beta, self.bonus, self.sampler_noise, self.verl = 0.0, 0.0, 0.0, False
        self.reward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = self.right
        self.broken_end = False

    @staticmethod
    def right(prompt: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The share of the first three tokens that repeat the prompt, and a little for an end after them."""
        alike = (tokens[:, :3] == prompt[:, None]).float().mean(1)
        return 0.8 * alike + 0.2 * (tokens[:, 3] == END).float()

    def answer(self, prompt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens, mask, and the log-probabilities of the sampler."""
        tokens = torch.zeros(len(prompt), MOST, dtype=torch.long)
        sampled = torch.zeros(len(prompt), MOST)
        for place in range(MOST):
            logits = self.model(prompt, tokens)[:, place]
            logits = logits + self.sampler_noise * torch.randn_like(logits)
            if self.broken_end:
                logits[:, END] = -20.0
            chosen = torch.distributions.Categorical(logits=logits)
            tokens[:, place] = chosen.sample()
            sampled[:, place] = chosen.log_prob(tokens[:, place])
        ended = (tokens == END).cumsum(1)
        return tokens, (ended - (tokens == END).long() == 0).float(), sampled

    def fit(self, run: Tape, steps: int = 300, at: Callable[["Grpo", int], None] | None = None) -> None:
        """Train."""
        for step in range(steps):
            if at is not None:
                at(self, step)
            with run.step(step):
                prompt = torch.randint(1, TOKENS, (PROMPTS,)).repeat_interleave(GROUP)
                with run.span("rl.sample"), torch.no_grad():
                    tokens, mask, sampled = self.answer(prompt)
                with run.span("rl.train"):
                    values = self._update(prompt, tokens, mask, sampled)
                run.log(self._verl(values) if self.verl else values)

    def _update(self, prompt: Any, tokens: Any, mask: Any, sampled: Any) -> dict[str, float]:
        reward = self.reward(prompt, tokens)
        groups = reward.view(PROMPTS, GROUP)
        advantage = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1)
        logs, entropy = chances(self.model, prompt, tokens)
        with torch.no_grad():
            reference = chances(self.reference, prompt, tokens)[0]
        ratio = (logs - logs.detach()).exp()
        count = mask.sum()
        difference = reference - logs
        kl = ((difference.exp() - difference - 1) * mask).sum() / count
        spread = (entropy * mask).sum() / count
        loss = -(ratio * advantage[:, None] * mask).sum() / count + self.beta * kl - self.bonus * spread
        self.optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        gap = ((logs.detach() - sampled).abs() * mask).sum() / count
        return {
            "loss": loss.item(),
            "grad_norm": norm.item(),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "reward": reward.mean().item(),
            "reward_std": groups.std(1).mean().item(),
            "frac_reward_zero_std": (groups.std(1) < 1e-6).float().mean().item(),
            "kl": kl.item(),
            "entropy": spread.item(),
            "completions/mean_length": mask.sum(1).mean().item(),
            "completions/clipped_ratio": ((tokens != END).all(1)).float().mean().item(),
            "clip_ratio/low_mean": 0.0,
            "clip_ratio/high_mean": 0.0,
            "clip_ratio/region_mean": 0.0,
            "sampling/sampling_logp_difference/mean": gap.item(),
        }

    @staticmethod
    def _verl(values: dict[str, float]) -> dict[str, float]:
        names = {
            "loss": "actor/pg_loss",
            "grad_norm": "actor/grad_norm",
            "learning_rate": "actor/lr",
            "reward": "critic/score/mean",
            "kl": "actor/kl_loss",
            "entropy": "actor/entropy",
            "completions/mean_length": "response_length/mean",
            "completions/clipped_ratio": "response_length/clip_ratio",
            "clip_ratio/low_mean": "actor/pg_clipfrac_lower",
            "clip_ratio/region_mean": "actor/pg_clipfrac",
            "sampling/sampling_logp_difference/mean": "training/rollout_probs_diff_mean",
        }
        return {name: values[key] for key, name in names.items()}


@healthy("grpo")
def plain(run: Tape) -> None:
    """TRL's names, no KL term."""
    torch.manual_seed(0)
    Grpo().fit(run)


@healthy("grpo")
def with_kl(run: Tape) -> None:
    """With a KL term to the reference."""
    torch.manual_seed(1)
    grpo = Grpo(3e-3)
    grpo.beta = 0.04
    grpo.fit(run)


@healthy("grpo")
def verl_names(run: Tape) -> None:
    """The names of verl, slower."""
    torch.manual_seed(2)
    grpo = Grpo(2e-3)
    grpo.verl = True
    grpo.bonus = 0.01
    grpo.fit(run, 350)


def _from(at: int, **parts: Any) -> Callable[[Grpo, int], None]:
    def change(grpo: Grpo, step: int) -> None:
        if step == at:
            for name, part in parts.items():
                setattr(grpo, name, part)

    return change


def _same(prompt: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(prompt))


@fault("grpo", "zero_advantage dead_environment", 60, window=30)
def no_reward(run: Tape) -> None:
    """The verifier is down from step 60 on: every answer gets 0."""
    torch.manual_seed(3)
    Grpo(1.5e-3).fit(run, 220, _from(60, reward=_same))


@fault("grpo", "dead_environment", 70, window=30)
def no_reward_verl(run: Tape) -> None:
    """The same under verl's names, which have no share of equal groups."""
    torch.manual_seed(4)
    grpo = Grpo(1.5e-3)
    grpo.verl = True
    grpo.fit(run, 220, _from(70, reward=_same))


@fault("grpo", "entropy_explosion reward_collapse", 200, window=40)
def bonus_too_high(run: Tape) -> None:
    """The entropy bonus is far too high from step 200 on."""
    torch.manual_seed(5)
    Grpo().fit(run, 300, _from(200, bonus=5.0))


@fault("grpo", "truncation", 200, window=30)
def never_ends(run: Tape) -> None:
    """The sampler loses its end token at step 200: every answer is cut off."""
    torch.manual_seed(6)
    Grpo().fit(run, 300, _from(200, broken_end=True))


@fault("grpo", "mismatch", 180, window=30)
def sampler_differs(run: Tape) -> None:
    """The sampler computes with noise from step 180 on."""
    torch.manual_seed(7)
    grpo = Grpo(2e-3)
    grpo.verl = True
    grpo.fit(run, 300, _from(180, sampler_noise=1.0))


def _inverted(prompt: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return 0.3 - 0.3 * Grpo.right(prompt, tokens)


@fault("grpo", "reward_collapse", 180, window=30)
def reward_inverted(run: Tape) -> None:
    """From step 180 on the reward has the wrong sign and another scale."""
    torch.manual_seed(8)
    Grpo(2e-3).fit(run, 260, _from(180, reward=_inverted))


class Dpo:
    """Learns to prefer answers that repeat the prompt's token; a fault changes it at a step."""

    def __init__(self, lr: float = 1e-3, beta: float = 0.1, mistaken: float = 0.15) -> None:
        self.model, self.reference = Writer(), Writer()
        self.reference.load_state_dict(self.model.state_dict())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.beta, self.mistaken, self.updates, self.l2 = beta, mistaken, True, 0.0

    def pair(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A prompt, a better and a worse answer."""
        prompt = torch.randint(1, TOKENS, (32,))
        better, worse = torch.randint(1, TOKENS, (32, 4)), torch.randint(1, TOKENS, (32, 4))
        better[torch.rand(32, 4) < 0.5] = 0
        better = torch.where(better == 0, prompt[:, None], better)
        swap = torch.rand(32) < self.mistaken
        return prompt, torch.where(swap[:, None], worse, better), torch.where(swap[:, None], better, worse)

    def fit(self, run: Tape, steps: int = 300, at: Callable[["Dpo", int], None] | None = None) -> None:
        """Train."""
        for step in range(steps):
            if at is not None:
                at(self, step)
            with run.step(step):
                prompt, better, worse = self.pair()
                chosen, rejected = (chances(self.model, prompt, each)[0].sum(1) for each in (better, worse))
                with torch.no_grad():
                    chosen_before, rejected_before = (
                        chances(self.reference, prompt, each)[0].sum(1) for each in (better, worse)
                    )
                good, bad = self.beta * (chosen - chosen_before), self.beta * (rejected - rejected_before)
                loss = -torch.nn.functional.logsigmoid(good - bad).mean()
                self.optimizer.zero_grad()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1e9)
                if self.updates:
                    self.optimizer.step()
                run.log(
                    {
                        "loss": loss.item(),
                        "grad_norm": norm.item(),
                        "learning_rate": self.optimizer.param_groups[0]["lr"],
                        "rewards/chosen": good.mean().item(),
                        "rewards/rejected": bad.mean().item(),
                        "rewards/margins": (good - bad).mean().item(),
                        "rewards/accuracies": (good > bad).float().mean().item(),
                        "logps/chosen": chosen.mean().item(),
                        "logps/rejected": rejected.mean().item(),
                    }
                )


@healthy("dpo")
def plain(run: Tape) -> None:  # noqa: F811
    """Falls from ln 2; one label in seven is wrong."""
    torch.manual_seed(0)
    Dpo().fit(run)


@healthy("dpo")
def slow(run: Tape) -> None:
    """A low rate: far from done at the end."""
    torch.manual_seed(1)
    Dpo(2e-4).fit(run, 350)


@healthy("dpo")
def noisy(run: Tape) -> None:
    """One label in four is wrong."""
    torch.manual_seed(2)
    Dpo(2e-3, mistaken=0.25).fit(run, 300)


@fault("dpo", "not_learning", window=400)
def never_updated(run: Tape) -> None:
    """The optimizer has the reference's parameters: the loss stays at ln 2."""
    torch.manual_seed(3)
    dpo = Dpo()
    dpo.updates = False
    dpo.fit(run)


@fault("dpo", "chosen_falls margin_explosion", window=400)
def rate_too_high(run: Tape) -> None:
    """The rate is far too high: both answers become unlikely."""
    torch.manual_seed(4)
    Dpo(0.1, mistaken=0.0).fit(run)


@fault("dpo", "level_shift accuracy_drop spike margin_collapse", 180, window=30)
def swapped_pairs(run: Tape) -> None:
    """From step 180 on chosen and rejected are swapped."""
    torch.manual_seed(5)

    def at(dpo: Dpo, step: int) -> None:
        dpo.mistaken = 0.85 if step >= 180 else 0.15

    Dpo(3e-3).fit(run, 320, at)


@fault("dpo", "chosen_falls", window=400)
def chosen_falls(run: Tape) -> None:
    """Chosen and rejected answers are nearly the same text: both become unlikely."""
    torch.manual_seed(6)
    dpo = Dpo(3e-3, beta=0.05, mistaken=0.0)
    inner = dpo.pair

    def pair() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        prompt, _, worse = inner()
        better = worse.clone()
        better[:, 0] = (worse[:, 0] % 5) + 1
        worse = better.clone()
        worse[:, 0] = 6 + worse[:, 0]
        return prompt, better, worse

    dpo.pair = pair  # type: ignore[method-assign]

    def at(dpo: Dpo, step: int) -> None:
        with torch.no_grad():
            dpo.model.out[2].bias[1:6] -= 0.05  # type: ignore[index, union-attr, operator]

    dpo.fit(run, 300, at)
