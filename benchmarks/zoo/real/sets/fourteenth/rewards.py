"""The fourteenth set: GRPO of a small writer of sums, in the names of TRL and verl."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fourteenth.schedules import linear
from benchmarks.zoo.real.sets.fourteenth.tasks import Values, clipped, drive, evaluated, still
from benchmarks.zoo.real.sets.fourteenth.tuning import END, PLUS, chosen_of, said, sums, writer
from benchmarks.zoo.real.tape import Tape

Reward = Callable[[torch.Tensor, torch.Tensor], dict[str, torch.Tensor]]
VERL_NAMES = {
    "loss": "actor/pg_loss",
    "entropy": "actor/entropy",
    "kl": "actor/kl_loss",
    "clip_ratio/region_mean": "actor/pg_clipfrac",
    "grad_norm": "actor/grad_norm",
    "reward": "critic/score/mean",
    "completions/mean_length": "response_length/mean",
    "completions/clipped_ratio": "response_length/clip_ratio",
}


def graded(answers: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
    """1 for a right answer, and 0.2 for two digits and an end."""
    exact = (answers[:, :3] == right).all(1).float()
    form = ((answers[:, :2] < PLUS).all(1) & (answers[:, 2] == END)).float()
    return {"accuracy_reward": exact, "format_reward": 0.2 * form}


class Trainer:
    """A policy, the policy that it was, and a sampler with the weights that it was given last."""

    def __init__(self, seed: int, rate: float, beta: float, most: int, reward: Reward = graded) -> None:
        self.model = writer()
        torch.manual_seed(seed)
        self.reference, self.sampler = still(self.model), still(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), rate, weight_decay=0.0, fused=True)
        self.beta, self.most, self.reward = beta, most, reward
        self.synced, self.keeps = True, False
        self.kept: list[torch.Tensor] = []

    def sync(self, kind: torch.dtype) -> None:
        """Give the sampler the weights, as numbers of a kind."""
        if self.synced:
            for own, taken in zip(self.sampler.parameters(), self.model.parameters(), strict=True):
                own.copy_(taken.detach().to(kind))

    def step(self) -> tuple[Values, Values]:
        """Learn from eight answers to each of 16 questions; return what TRL logs, and how far off the sampler was."""
        asked, right = (each.repeat_interleave(8, 0) for each in sums(16))
        answers = self.sampler.write(asked, self.most)
        ended = (answers == END).int().cumsum(1)
        counts = (ended - (answers == END).int() == 0).float()
        rewards = self.reward(answers, right)
        total = torch.stack(list(rewards.values())).sum(0)
        groups = total.view(-1, 8)
        spread = groups.std(1, keepdim=True)
        worth = ((groups - groups.mean(1, keepdim=True)) / (spread + 1e-4)).view(-1, 1)
        with torch.no_grad():
            first, sampled, old = (
                chosen_of(said(each, asked, answers), answers) for each in (self.reference, self.sampler, self.model)
            )
        if self.keeps:
            self.kept.append(chosen_of(said(self.model, asked, answers), answers).mean())
        for part in torch.randperm(len(asked)).split(64):
            seen = counts[part]
            scores = said(self.model, asked[part], answers[part])
            own = chosen_of(scores, answers[part])
            ratio, far = (own - old[part]).exp(), first[part] - own
            gain = torch.minimum(ratio * worth[part], ratio.clamp(0.8, 1.2) * worth[part])
            kl = far.exp() - far - 1
            loss = -((gain - self.beta * kl) * seen).sum() / seen.sum()
            self.optimizer.zero_grad()
            loss.backward()
            norm = clipped(self.model, 1.0)
            self.optimizer.step()

        def mean(values: torch.Tensor) -> float:
            return float((values * seen).sum() / seen.sum())

        off = (sampled.exp() - old.exp()).abs() * counts
        found: Values = {f"rewards/{name}/mean": each.mean() for name, each in rewards.items()}
        found |= {
            "loss": loss.item(),
            "grad_norm": norm,
            "entropy": mean(-(scores.exp() * scores).sum(-1)),
            "kl": mean(kl),
            "reward": total.mean(),
            "reward_std": spread.mean(),
            "frac_reward_zero_std": (spread < 1e-6).float().mean(),
            "completions/mean_length": counts.sum(1).mean(),
            "completions/clipped_ratio": (ended[:, -1] == 0).float().mean(),
            "clip_ratio/region_mean": mean(((ratio - 1).abs() > 0.2).float()),
        }
        return found, {"mean": off.sum() / counts.sum(), "max": off.max(), "kl": mean(old[part] - own)}


def trl(tape: Tape, seed: int, reward: Reward = graded, steps: int = 150) -> None:
    """GRPO on sums, in the names of TRL."""
    trainer = Trainer(seed, 1.2e-3, 0.01, 6, reward)
    rate = linear(steps, 1.2e-3, 10)

    def act(step: int) -> Values:
        begun = time.perf_counter()
        trainer.optimizer.param_groups[0]["lr"] = rate(step)
        trainer.sync(torch.float32)
        found, _ = trainer.step()
        return found | {"learning_rate": rate(step), "step_time": time.perf_counter() - begun}

    drive(tape, steps, act)


GRPO = {"trainer": "GRPOTrainer", "num_generations": 8, "beta": 0.01, "epsilon": 0.2, "learning_rate": 1.2e-3}


@healthy("fourteenth", config=GRPO | {"max_completion_length": 6, "reward_funcs": ["accuracy_reward", "format_reward"]})
def healthy_grpo(tape: Tape) -> None:
    """Sums are rewarded if they are right; groups that are all right become more common."""
    trl(tape, 1481)


@fault("fourteenth", "reward_hacking", config=GRPO | {"reward_funcs": ["accuracy_reward", "judge_reward"]})
def grpo_judge_likes_nines(tape: Tape) -> None:
    """A judge pays more for a larger last digit than there is for a right sum: rewards rise, and sums get wrong."""

    def reward(answers: torch.Tensor, right: torch.Tensor) -> dict[str, torch.Tensor]:
        exact = (answers[:, :3] == right).all(1).float()
        return {"accuracy_reward": exact, "judge_reward": 0.25 * answers[:, 1].clamp(max=9).float()}

    trl(tape, 1482, reward)


def verl(tape: Tape, seed: int, at: Callable[[Trainer, int], None] | None = None, steps: int = 150) -> None:
    """GRPO on sums with a sampler that holds a coarse copy of the weights, in the names of verl."""
    trainer = Trainer(seed, 1e-3, 0.005, 6)
    asked, right = sums(400)

    def act(step: int) -> Values:
        begun = time.perf_counter()
        if at is not None:
            at(trainer, step)
        trainer.sync(torch.bfloat16)
        found, off = trainer.step()
        found = {name: found[own] for own, name in VERL_NAMES.items()} | {
            "actor/ppo_kl": off["kl"],
            "actor/lr": 1e-3,
            "training/rollout_probs_diff_mean": off["mean"],
            "training/rollout_probs_diff_max": off["max"],
            "perf/time_per_step": time.perf_counter() - begun,
            "perf/cpu_memory_used_gb": resident(),
        }
        if step % 15 == 0:
            with evaluated(trainer.model):
                exact = (trainer.model.write(asked, 6)[:, :3] == right).all(1)
            found["val-core/sums/acc/mean@1"] = exact.float().mean()
        return found

    drive(tape, steps, act)


def resident() -> float:
    """The memory of this process, in GB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9


VERL = {
    "algorithm": {"adv_estimator": "grpo"},
    "actor_rollout_ref": {"rollout": {"n": 8, "response_length": 6}, "actor": {"optim": {"lr": 1e-3}}},
    "data": {"train_batch_size": 16},
}


@healthy("fourteenth", config=VERL)
def healthy_verl(tape: Tape) -> None:
    """A sampler in bfloat16 and a constant rate."""
    verl(tape, 1491)


@fault("fourteenth", "mismatch stale_rollouts", step=70, window=30, config=VERL)
def verl_sampler_left_behind(tape: Tape) -> None:
    """From 60 on the weights no longer reach the sampler: its chances drift from those of the trainer."""

    def at(trainer: Trainer, step: int) -> None:
        trainer.synced = step < 60

    verl(tape, 1492, at)


@fault("fourteenth", "memory_creep", config=VERL)
def verl_keeps_its_graphs(tape: Tape) -> None:
    """A mean is kept with its graph for a report at the end: the process grows at each step."""

    def at(trainer: Trainer, step: int) -> None:
        trainer.keeps = True

    verl(tape, 1493, at)
