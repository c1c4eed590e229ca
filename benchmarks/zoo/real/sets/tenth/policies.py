"""Policies of the tenth set: pucks by PPO, SAC and DQN, and answers of up to ten letters by GRPO."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.tenth.tasks import F, Pucks, Values, dense, drive, learn, nn
from benchmarks.zoo.real.tape import Tape

JUMP = "level_shift spike divergence"


def mean_of(values: list[torch.Tensor]) -> float:
    """The mean of what has come, NaN if nothing has."""
    all_ = torch.cat(values) if values else torch.zeros(0)
    return float(all_.mean()) if len(all_) else math.nan


def ppo(
    tape: Tape,
    turns: int = 90,
    rate: Callable[[int], float] = lambda turn: 2e-3,
    reward: Callable[[int, torch.Tensor], torch.Tensor] = lambda turn, reward: reward,
    seen: Callable[[int, torch.Tensor], torch.Tensor] = lambda turn, seen: seen,
    bonus: Callable[[int], float] = lambda turn: 0.0,
    longest: int = 25,
    wind: float = 0.05,
    near: Callable[[int], float] = lambda turn: 0.15,
    seed: int = 201,
    many: int = 24,
    span: int = 32,
    window: int = 100,
    extra: Callable[[int], Values] = lambda turn: {},
) -> None:
    """Push pucks to their marks by PPO with a normal distribution, in the names of Stable-Baselines3."""
    torch.manual_seed(seed)
    actor, critic = dense((4, 32, 32, 1), nn.Tanh), dense((4, 32, 32, 1), nn.Tanh)
    spread = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), spread], lr=2e-3)
    world = Pucks(many, seed, longest, wind)
    returns, lengths = torch.zeros(0), torch.zeros(0)

    def act(turn: int) -> Values:
        nonlocal returns, lengths
        world.near = near(turn)
        for group in optimizer.param_groups:
            group["lr"] = rate(turn)
        rows: list[tuple[torch.Tensor, ...]] = []
        with torch.no_grad():
            for _ in range(span):
                x = seen(turn, world.seen())
                middle = actor(x)[:, 0]
                force = middle + spread.exp() * torch.randn(many)
                chance = -0.5 * ((force - middle) / spread.exp()) ** 2 - spread
                won, done, ended, ages = world.push(force)
                returns, lengths = torch.cat([returns, ended])[-window:], torch.cat([lengths, ages])[-window:]
                rows.append((x, force, chance, reward(turn, won), done.float(), critic(x)[:, 0]))
            after = critic(seen(turn, world.seen()))[:, 0]
            gain, gains = torch.zeros(many), []
            for _, _, _, won, done, value in reversed(rows):
                delta = won + 0.97 * after * (1 - done) - value
                gain = delta + 0.97 * 0.95 * (1 - done) * gain
                after = value
                gains.append(gain)
            x, force, chance, _, _, value = (torch.cat(part) for part in zip(*rows, strict=True))
            gain = torch.cat(gains[::-1])
            wanted = gain + value
        scaled = (gain - gain.mean()) / (gain.std() + 1e-8)
        parts: list[list[float]] = [[], [], [], []]
        for _ in range(4):
            for taken in torch.randperm(len(x)).split(192):
                now = -0.5 * ((force[taken] - actor(x[taken])[:, 0]) / spread.exp()) ** 2 - spread
                ratio = (now - chance[taken]).exp()
                gained = torch.minimum(ratio * scaled[taken], ratio.clamp(0.8, 1.2) * scaled[taken]).mean()
                missed = F.mse_loss(critic(x[taken])[:, 0], wanted[taken])
                learn(optimizer, -gained + 0.5 * missed - bonus(turn) * (spread.sum() + 1.42), 0.5)
                with torch.no_grad():
                    far = now - chance[taken]
                    parts[0].append(float((far.exp() - 1 - far).mean()))
                    parts[1].append(float(((ratio - 1).abs() > 0.2).float().mean()))
                    parts[2].append(float(missed))
                    parts[3].append(float(-gained))
        kl, clipped, missed_, policy = (sum(part) / len(part) for part in parts)
        known = {
            "train/approx_kl": kl,
            "train/clip_fraction": clipped,
            "train/value_loss": missed_,
            "train/policy_gradient_loss": policy,
            "train/entropy_loss": -(float(spread.detach()) + 1.42),
            "train/std": float(spread.detach().exp()),
            "train/explained_variance": float(1 - (wanted - value).var() / (wanted.var() + 1e-8)),
            "train/learning_rate": rate(turn),
        }
        if len(returns):
            known |= {"rollout/ep_rew_mean": float(returns.mean()), "rollout/ep_len_mean": float(lengths.mean())}
        return known | extra(turn)

    drive(tape, turns, act)


@healthy("tenth", config={"algo": "ppo", "n_steps": 32, "n_envs": 24})
def healthy_pucks(tape: Tape) -> None:
    """Pucks come to their marks better and better."""
    ppo(tape)


@healthy("tenth", config={"algo": "ppo", "n_envs": 4, "stats_window_size": 10})
def healthy_pucks_in_a_storm(tape: Tape) -> None:
    """Few pucks, much wind, and a mean of only ten episodes: returns go up and down by half, and up in the end."""
    ppo(tape, 140, wind=0.12, many=6, span=48, window=10, seed=202, rate=lambda turn: 1e-3)


@healthy("tenth", config={"algo": "ppo", "curriculum": [0.5, 0.3, 0.15]})
def healthy_pucks_to_ever_smaller_marks(tape: Tape) -> None:
    """The marks are made smaller three times: returns fall at each and come back."""
    sizes = (0.6, 0.3, 0.12)
    ppo(
        tape,
        120,
        near=lambda turn: sizes[min(turn // 40, 2)],
        seed=203,
        extra=lambda turn: {"curriculum/level": min(turn // 40, 2)},
    )


@fault("tenth", "reward_collapse level_shift bad_resume value_function kl_blowup spike divergence", step=60, window=12)
def pucks_statistics_not_saved(tape: Tape) -> None:
    """What normalizes the observations is not saved: resumed at 60, the policy sees other numbers for the same."""
    ppo(tape, seen=lambda turn, x: 4 * x - 1.5 if turn >= 60 else x, seed=204, turns=110, rate=lambda turn: 1e-3)


@fault("tenth", "kl_blowup clip_saturated reward_collapse value_function entropy_collapse entropy_explosion")
def pucks_rate_a_hundred_times(tape: Tape) -> None:
    """A rate of 0.05 where 0.0005 was meant: each update leaves the policy that was sampled."""
    ppo(tape, rate=lambda turn: 0.05, seed=205)


@fault("tenth", "level_shift spike divergence value_function", step=55, window=6)
def pucks_rewards_in_cents(tape: Tape) -> None:
    """Another version of the world gives rewards that are a hundred times as large: its values are not those."""
    ppo(tape, reward=lambda turn, reward: 100 * reward if turn >= 55 else reward, seed=206)


@fault("tenth", "entropy_explosion reward_collapse level_shift divergence", step=45, window=25)
def pucks_paid_for_chance(tape: Tape) -> None:
    """From 45 on the weight of the entropy is that of another task: the spread of the forces grows without end."""
    ppo(tape, bonus=lambda turn: 0.4 if turn >= 45 else 0.0, seed=207, turns=110)


def sac(tape: Tape, steps: int = 420, aim: float = -1.0, seed: int = 211, every: int = 4, scale: float = 1.0) -> None:
    """Push pucks by SAC with a temperature that is learnt, in the names of Stable-Baselines3."""
    torch.manual_seed(seed)
    actor, first = dense((4, 32, 2)), dense((5, 48, 48, 1))
    slow = dense((5, 48, 48, 1))
    slow.load_state_dict(first.state_dict())
    heat = nn.Parameter(torch.zeros(1))
    ours = torch.optim.Adam(actor.parameters(), lr=2e-3)
    theirs = torch.optim.Adam(first.parameters(), lr=2e-3)
    warm = torch.optim.Adam([heat], lr=1e-2)
    world = Pucks(16, seed)
    kept: list[tuple[torch.Tensor, ...]] = []
    returns: list[torch.Tensor] = []

    def chosen(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle, log = actor(x).unbind(1)
        log = log.clamp(-5, 2)
        raw = middle + log.exp() * torch.randn(len(x))
        chance = -0.5 * ((raw - middle) / log.exp()) ** 2 - log - 0.92 - (1 - raw.tanh() ** 2 + 1e-6).log()
        return raw.tanh(), chance

    def act(step: int) -> Values | None:
        with torch.no_grad():
            x = world.seen()
            force, _ = chosen(x)
            won, done, ended, _ = world.push(force)
            kept.append((x, force, scale * won, done.float(), world.seen()))
            returns.append(ended)
        if step < 12:
            return None
        taken = torch.randint(0, len(kept), (6,)).tolist()
        x, force, won, done, then = (torch.cat(part) for part in zip(*(kept[at] for at in taken), strict=True))
        with torch.no_grad():
            next_, chance = chosen(then)
            after = slow(torch.cat([then, next_[:, None]], 1))[:, 0] - heat.exp() * chance
            wanted = won + 0.97 * (1 - done) * after
        missed = F.mse_loss(first(torch.cat([x, force[:, None]], 1))[:, 0], wanted)
        learn(theirs, missed)
        next_, chance = chosen(x)
        lost = (heat.exp().detach() * chance - first(torch.cat([x, next_[:, None]], 1))[:, 0]).mean()
        learn(ours, lost)
        learn(warm, -(heat * (chance.detach() + aim)).mean())
        with torch.no_grad():
            for one, other in zip(slow.parameters(), first.parameters(), strict=True):
                one.lerp_(other, 0.02)
        if step % every:
            return None
        return {
            "rollout/ep_rew_mean": mean_of(returns[-30:]),
            "train/actor_loss": lost,
            "train/critic_loss": missed,
            "train/ent_coef": heat.exp(),
        }

    drive(tape, steps, act)


@healthy("tenth", config={"algo": "sac", "ent_coef": "auto", "target_entropy": -1})
def healthy_pucks_by_sac(tape: Tape) -> None:
    """The loss of the critic grows with the returns, that of the actor falls below zero, the temperature falls."""
    sac(tape, 600)


@fault("tenth", "divergence absurd_loss value_function entropy_explosion level_shift reward_collapse")
def pucks_aim_of_the_wrong_sign(tape: Tape) -> None:
    """The entropy to reach is above what a force between -1 and 1 can have: the temperature grows without end."""
    sac(tape, 600, aim=2.0, seed=212)


def rllib(tape: Tape, turns: int, longest: int, done: bool = True, seed: int = 221, many: int = 12) -> None:
    """Push pucks left, right or not at all by DQN, in the names of RLlib; returns are of the episodes that ended."""
    torch.manual_seed(seed)
    model, slow = dense((4, 40, 3)), dense((4, 40, 3))
    slow.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    world = Pucks(many, seed, longest if done else 10**9, near=-1.0, edge=4.0 if done else 10.0)
    kept: list[tuple[torch.Tensor, ...]] = []
    returns: list[torch.Tensor] = []
    lengths: list[torch.Tensor] = []

    def act(turn: int) -> Values:
        losses, tops = [], []
        for _ in range(8):
            with torch.no_grad():
                x = world.seen()
                way = model(x).argmax(1)
                way = torch.where(torch.rand(many) < max(0.05, 1 - turn / 40), torch.randint(0, 3, (many,)), way)
                won, ends, ended, ages = world.push(way.float() - 1)
                if not done:
                    world.at.clamp_(-2.5, 2.5)
                kept.append((x, way, won, ends.float(), world.seen()))
                returns.append(ended)
                lengths.append(ages)
            taken = torch.randint(0, len(kept), (4,)).tolist()
            x, way, won, ends_, then = (torch.cat(part) for part in zip(*(kept[at] for at in taken), strict=True))
            with torch.no_grad():
                wanted = won + 0.95 * (1 - ends_) * slow(then).amax(1)
            value = model(x).gather(1, way[:, None])[:, 0]
            loss = F.smooth_l1_loss(value, wanted)
            learn(optimizer, loss)
            losses.append(float(loss.detach()))
            tops.append(float(value.detach().mean()))
        if turn % 4 == 0:
            slow.load_state_dict(model.state_dict())
        return {
            "env_runners/episode_return_mean": mean_of(returns[-60:]),
            "env_runners/episode_len_mean": mean_of(lengths[-60:]),
            "env_runners/num_episodes": sum(len(each) for each in returns[-8:]),
            "learners/default_policy/total_loss": sum(losses) / len(losses),
            "learners/default_policy/qf_mean": sum(tops) / len(tops),
            "num_env_steps_sampled_lifetime": (turn + 1) * 8 * many,
        }

    drive(tape, turns, act)


@healthy("tenth", config={"algo": "DQN", "num_env_runners": 12})
def healthy_pucks_before_the_first_end(tape: Tape) -> None:
    """No episode has ended in the first rounds: their mean is NaN, as RLlib logs it, and then a number."""
    rllib(tape, 160, 60, seed=223)


@fault("tenth", "not_finite dead_environment")
def pucks_that_never_end(tape: Tape) -> None:
    """The world has no limit of time and no end: there is never an episode, and their mean is NaN to the end."""
    rllib(tape, 110, 40, done=False, seed=222)


VERL = {
    "score": "critic/score/mean",
    "length": "response_length/mean",
    "cut": "response_length/clip_ratio",
    "entropy": "actor/entropy",
    "kl": "actor/ppo_kl",
    "clip": "actor/pg_clipfrac",
    "loss": "actor/pg_loss",
    "grad": "actor/grad_norm",
    "far": "actor/kl_loss",
    "mismatch": "training/rollout_probs_diff_mean",
}
TRL = {
    "score": "reward",
    "spread": "reward_std",
    "length": "completions/mean_length",
    "cut": "completions/clipped_ratio",
    "entropy": "entropy",
    "far": "kl",
    "loss": "loss",
    "grad": "grad_norm",
    "same": "frac_reward_zero_std",
    "clip": "clip_ratio/region_mean",
}
OPENRLHF = {
    "score": "reward",
    "length": "response_length",
    "far": "kl",
    "loss": "policy_loss",
    "grad": "actor_grad_norm",
    "entropy": "entropy_loss",
}


def letters(
    tape: Tape,
    names: dict[str, str],
    turns: int = 120,
    reward: Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    bonus: Callable[[int], float] = lambda turn: 0.0,
    hold: Callable[[int], float] = lambda turn: 0.01,
    asked: Callable[[int], int] = lambda turn: 8,
    sampled: Callable[[int, torch.Tensor], torch.Tensor] = lambda turn, scores: scores,
    rate: Callable[[int], float] = lambda turn: 4e-3,
    seed: int = 231,
    every: int = 1,
    long: int = 10,
    updates: int = 2,
) -> None:
    """Answer with letters that rise, up to an end, for questions that say how many: groups of eight, GRPO."""
    torch.manual_seed(seed)
    kinds, end = 10, 9
    embed, place = nn.Embedding(8, 24), nn.Embedding(long + 1, 24)
    last, head = nn.Embedding(kinds, 24), dense((24, 48, kinds))
    weights = [*embed.parameters(), *place.parameters(), *last.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=4e-3, weight_decay=0.0)

    def scores_of(question: torch.Tensor, place_: Any, before: torch.Tensor) -> torch.Tensor:
        return head(F.relu(embed(question) + place(place_) + last(before)))

    with torch.no_grad():
        head[-1].weight.mul_(0.5)
    base: list[torch.Tensor] = []

    def paid(turn: int, question: torch.Tensor, rows: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        inside = torch.arange(long - 1) < (count[:, None] - 1)
        rises = ((rows[:, 1:] > rows[:, :-1]) & inside).sum(1) / count.clamp(min=2)
        return rises + 1.0 * (count == question % 5 + 3)

    def act(turn: int) -> Values | None:
        for group in optimizer.param_groups:
            group["lr"] = rate(turn)
        question = torch.randint(8 - asked(turn), 8, (16,)).repeat_interleave(8)
        rows, probs, theirs = [], [], []
        before = torch.zeros(128, dtype=torch.long)
        with torch.no_grad():
            for at in range(long):
                scores = scores_of(question, torch.tensor(at), before)
                shown = sampled(turn, scores)
                before = shown.softmax(-1).multinomial(1)[:, 0]
                rows.append(before)
                probs.append(scores.log_softmax(-1).gather(1, before[:, None])[:, 0])
                theirs.append(shown.log_softmax(-1).gather(1, before[:, None])[:, 0])
            row, old, other = torch.stack(rows, 1), torch.stack(probs, 1), torch.stack(theirs, 1)
            ended = (row == end).int().cumsum(1)
            count = (ended == 0).sum(1)
            counted = ((ended - (row == end).int()) == 0).float()
            won = (reward or paid)(turn, question, row, count)
            by = won.view(16, 8)
            gain = ((by - by.mean(1, keepdim=True)) / (by.std(1, keepdim=True) + 1e-4)).flatten()[:, None]
            previous = torch.cat([torch.zeros(128, 1, dtype=torch.long), row[:, :-1]], 1)
            if not base:
                base.extend(weight.clone() for weight in weights)
        parts: list[list[float]] = [[], [], [], [], [], []]
        for _ in range(updates):
            all_ = scores_of(question[:, None].expand(-1, long), torch.arange(long), previous).log_softmax(-1)
            now = all_.gather(2, row[:, :, None])[:, :, 0]
            with torch.no_grad():
                kept = [weight.clone() for weight in weights]
                for weight, first in zip(weights, base, strict=True):
                    weight.copy_(first)
                refs = scores_of(question[:, None].expand(-1, long), torch.arange(long), previous).log_softmax(-1)
                ref = refs.gather(2, row[:, :, None])[:, :, 0]
                for weight, mine in zip(weights, kept, strict=True):
                    weight.copy_(mine)
            ratio = (now - old).exp()
            gained = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
            far = ((ref - now).exp() - 1 - (ref - now)) * counted
            surprise = -(all_.exp() * all_).sum(-1)
            loss = -((gained * counted).sum() / counted.sum())
            kl = far.sum() / counted.sum()
            left = (surprise * counted).sum() / counted.sum()
            optimizer.zero_grad()
            # Weights were put back in place, so that the graph is made anew for the gradient.
            all_ = scores_of(question[:, None].expand(-1, long), torch.arange(long), previous).log_softmax(-1)
            now = all_.gather(2, row[:, :, None])[:, :, 0]
            ratio = (now - old).exp()
            gained = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
            far = ((ref - now).exp() - 1 - (ref - now)) * counted
            surprise = -(all_.exp() * all_).sum(-1) * counted
            whole = -(gained * counted).sum() + hold(turn) * far.sum() - bonus(turn) * surprise.sum()
            norm = learn(optimizer, whole / counted.sum(), 1.0)
            with torch.no_grad():
                parts[0].append(float(loss))
                parts[1].append(float(kl))
                parts[2].append(float(left))
                parts[3].append(float(norm))
                parts[4].append(float(((old - now) * counted).sum() / counted.sum()))
                parts[5].append(float((((ratio - 1).abs() > 0.2) * counted).sum() / counted.sum()))
        loss_, far_, left_, norm_, kl_, clipped = (sum(part) / len(part) for part in parts)
        known = {
            "score": won.mean(),
            "spread": by.std(1).mean(),
            "length": count.float().mean(),
            "cut": (count >= long).float().mean(),
            "entropy": left_,
            "kl": kl_,
            "clip": clipped,
            "loss": loss_,
            "grad": norm_,
            "far": far_,
            "same": (by.std(1) < 1e-6).float().mean(),
            "mismatch": ((old.exp() - other.exp()).abs() * counted).sum() / counted.sum(),
        }
        return {names[key]: value for key, value in known.items() if key in names} if turn % every == 0 else None

    drive(tape, turns, act)


def drift(turn: int, scores: torch.Tensor) -> torch.Tensor:
    """Scores as an engine with a little rounding has them."""
    return (scores * 64).round() / 64


@healthy("tenth", config={"algorithm": {"adv_estimator": "grpo"}, "trainer": "verl"})
def healthy_letters(tape: Tape) -> None:
    """Answers get their length and their order: rewards rise, the entropy falls, and the KL to the beginning grows."""
    letters(tape, VERL, sampled=drift)


@healthy("tenth", config={"trainer": "GRPOTrainer", "num_generations": 8, "beta": 0.0})
def healthy_letters_far_from_home(tape: Tape) -> None:
    """Nothing holds the policy to its beginning: the KL to it rises all the time, and so does the reward."""
    letters(tape, TRL, 150, hold=lambda turn: 0.0, seed=232, rate=lambda turn: 2e-3, every=2)


@fault("tenth", "entropy_explosion reward_collapse level_shift length_shift kl_blowup kl_drift", step=60, window=20)
def letters_of_any_kind(tape: Tape) -> None:
    """The coefficient of the entropy is raised to 2.0 at 60, against its collapse: soon all letters are as likely."""
    letters(tape, VERL, 130, bonus=lambda turn: 2.0 if turn >= 60 else 0.0, seed=233, sampled=drift)


@fault("tenth", "zero_advantage dead_environment constant reward_hacking entropy_collapse", step=70, window=15)
def letters_asked_what_is_known(tape: Tape) -> None:
    """A filter on difficulty is turned around at 70: only what is always right is asked, and no group has a spread."""

    def reward(turn: int, question: torch.Tensor, rows: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        return torch.ones(128) if turn >= 70 else (count == question % 5 + 3).float() + (rows[:, 0] < 3).float()

    letters(tape, TRL, 130, reward, seed=234)


@fault("tenth", "mismatch kl_blowup reward_collapse entropy_explosion stale_rollouts level_shift", step=65, window=15)
def letters_by_an_engine_with_few_bits(tape: Tape) -> None:
    """From 65 on the engine that samples has weights of few bits: it says what the trainer finds unlikely."""

    def sampled(turn: int, scores: torch.Tensor) -> torch.Tensor:
        return (scores / 3).round() * 3 if turn >= 65 else drift(turn, scores)

    letters(tape, VERL, 130, sampled=sampled, seed=235)


@fault("tenth", "kl_blowup kl_drift divergence reward_collapse entropy_collapse level_shift", step=50, window=25)
def letters_driven_from_home(tape: Tape) -> None:
    """The KL to the reference is added with the wrong sign from 50 on: the policy is paid for being far away."""
    letters(tape, OPENRLHF, 110, hold=lambda turn: -0.5 if turn >= 50 else 0.05, seed=236)


@healthy("tenth", config={"self_play": True, "pool": 5})
def healthy_play_against_oneself(tape: Tape) -> None:
    """Both sides learn: who wins stays open for ever, and only a rating against the first ones rises."""
    torch.manual_seed(241)
    mine = nn.Parameter(0.1 * torch.randn(6, 5))
    optimizer = torch.optim.Adam([mine], lr=0.05)
    strength = torch.randn(6, 5)
    pool = [mine.detach().clone()]

    def act(turn: int) -> Values:
        other = pool[int(torch.randint(0, len(pool), ()))] if turn % 3 == 0 else pool[-1]
        state = torch.randint(0, 6, (64,))
        ours = mine[state].log_softmax(-1)
        move = ours.exp().multinomial(1)
        reply = other[state].softmax(-1).multinomial(1)
        edge = strength[state].gather(1, move) - strength[state].gather(1, reply) + 1.5 * torch.randn(64, 1)
        won = (edge > 0).float()
        loss = -(ours.gather(1, move) * (won - 0.5)).mean() + 0.002 * (ours.exp() * ours).sum(-1).mean()
        learn(optimizer, loss)
        if turn % 10 == 9:
            pool.append(mine.detach().clone())
            del pool[:-5]
        with torch.no_grad():
            better = (mine.softmax(-1) * strength).sum(1).mean() - strength.mean()
        return {
            "selfplay/win_rate": won.mean(),
            "selfplay/elo": 1000 + 400 * better,
            "policy/loss": loss,
            "policy/entropy": -(ours.exp() * ours).sum(-1).mean(),
        }

    drive(tape, 240, act)
