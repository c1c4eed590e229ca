"""The eleventh set: poles, a field of squares, drones, and language models that are rewarded or compared."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.eleventh.tasks import JUMP, F, Values, dense, drive, learn, nn, set_rate, spoil, twin
from benchmarks.zoo.real.tape import Tape

Change = Callable[[int, dict[str, Any]], None]


class Poles:
    """Carts with a pole, some of them at once, that begin anew by themselves."""

    def __init__(self, count: int, longest: int = 100) -> None:
        self.count, self.longest = count, longest
        self.state = 0.05 * torch.randn(count, 4)
        self.age = torch.zeros(count)

    def step(self, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Push each; returns who fell or is at its end, and the ages of those."""
        x, speed, lean, turn = self.state.unbind(1)
        force = 20.0 * right - 10
        pull = (force + 0.05 * turn**2 * lean.sin()) / 1.1
        fall = (9.8 * lean.sin() - lean.cos() * pull) / (0.5 * (4 / 3 - 0.1 * lean.cos() ** 2 / 1.1))
        push = pull - 0.05 * fall * lean.cos() / 1.1
        self.state = torch.stack([x + 0.02 * speed, speed + 0.02 * push, lean + 0.02 * turn, turn + 0.02 * fall], 1)
        self.age += 1
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.21) | (self.age >= self.longest)
        ages = self.age[done].clone()
        self.state[done] = 0.05 * torch.randn(int(done.sum()), 4)
        self.age[done] = 0
        return done, ages


def mean(values: list[Any]) -> float:
    """The mean of what there is."""
    return float(sum(float(value) for value in values) / max(len(values), 1))


SB3 = {
    "reward": "rollout/ep_rew_mean",
    "length": "rollout/ep_len_mean",
    "kl": "train/approx_kl",
    "clip": "train/clip_fraction",
    "entropy": "train/entropy_loss",
    "explained": "train/explained_variance",
    "value": "train/value_loss",
    "policy": "train/policy_gradient_loss",
    "lr": "train/learning_rate",
}
CLEAN = {
    "reward": "charts/episodic_return",
    "kl": "losses/approx_kl",
    "clip": "losses/clipfrac",
    "entropy": "losses/entropy",
    "explained": "losses/explained_variance",
    "value": "losses/value_loss",
    "policy": "losses/policy_loss",
    "lr": "charts/learning_rate",
}


def ppo(
    tape: Tape,
    at: Change | None = None,
    seed: int = 901,
    turns: int = 90,
    names: dict[str, str] = SB3,
    rate: float = 2.5e-3,
    chance: float = 0.01,
) -> None:
    """Poles by clipped policy gradients; a row after each collection of 24 steps of 24 carts."""
    torch.manual_seed(seed)
    poles = Poles(24)
    policy, value = dense((4, 32, 32, 2), nn.Tanh), dense((4, 32, 32, 1), nn.Tanh)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], rate)
    state: dict[str, Any] = {
        "policy": policy, "value": value, "sign": 1.0, "rate": rate, "chance": chance, "scale": 1.0,
        "seen": lambda x: x, "passes": 3,
    }  # fmt: skip
    recent: list[float] = []

    def act(turn: int) -> Values:
        if at is not None:
            at(turn, state)
        now = set_rate(optimizer, state["rate"] * (1 - 0.8 * turn / turns))
        rows: list[tuple[torch.Tensor, ...]] = []
        with torch.no_grad():
            for _ in range(24):
                seen = state["seen"](poles.state)
                odds = torch.distributions.Categorical(logits=policy(seen))
                chosen = odds.sample()
                done, ages = poles.step(chosen.float())
                recent.extend(ages.tolist())
                rows.append((seen, chosen, odds.log_prob(chosen), value(seen)[:, 0], done.float()))
            del recent[:-60]
            last = value(state["seen"](poles.state))[:, 0]
        seen, chosen, old, values, done = (torch.stack(part) for part in zip(*rows, strict=True))
        gain, gains, following = torch.zeros(24), [], last
        for at_step in reversed(range(24)):
            rest = 1 - done[at_step]
            off = state["scale"] * 0.1 + 0.98 * following * rest - values[at_step]
            gain = off + 0.98 * 0.95 * rest * gain
            gains.append(gain)
            following = values[at_step]
        gained = torch.stack(gains[::-1])
        wanted = (gained + values).flatten()
        edge = state["sign"] * (gained - gained.mean()) / (gained.std() + 1e-8)
        told: dict[str, list[Any]] = {name: [] for name in ("kl", "clip", "entropy", "value", "policy")}
        flat = (seen.flatten(0, 1), chosen.flatten(), old.flatten(), edge.flatten(), wanted)
        for _ in range(state["passes"]):
            for part in torch.randperm(576).split(192):
                s, a, o, e, w = (each[part] for each in flat)
                odds = torch.distributions.Categorical(logits=policy(s))
                ratio = (odds.log_prob(a) - o).exp()
                loss = -torch.min(ratio * e, ratio.clamp(0.8, 1.2) * e).mean()
                missed = F.mse_loss(value(s)[:, 0], w)
                entropy = odds.entropy().mean()
                learn(optimizer, loss + 0.5 * missed - state["chance"] * entropy, 0.5)
                told["kl"].append((ratio - 1 - ratio.log()).mean().detach())
                told["clip"].append(((ratio - 1).abs() > 0.2).float().mean())
                for name, each in (("entropy", entropy), ("value", missed), ("policy", loss)):
                    told[name].append(each.detach())
        found = {name: mean(each) for name, each in told.items()}
        found["entropy"] *= -1 if names is SB3 else 1
        found |= {"reward": mean(recent), "length": mean(recent), "lr": now}
        found["explained"] = float(1 - (wanted - values.flatten()).var() / (wanted.var() + 1e-8))
        return {names[name]: each for name, each in found.items() if name in names}

    drive(tape, turns, act)


@healthy("eleventh", config={"algo": "PPO", "env": "CartPole", "n_steps": 24, "n_envs": 24, "ent_coef": 0.01})
def healthy_poles(tape: Tape) -> None:
    """Poles that are kept up ever longer."""
    ppo(tape)


@healthy("eleventh", config={"exp_name": "ppo", "num_envs": 24, "anneal_lr": True})
def healthy_poles_in_other_names(tape: Tape) -> None:
    """The same in the names of CleanRL, with another seed and rate."""
    ppo(tape, seed=902, names=CLEAN, rate=1.5e-3, turns=110)


@fault(
    "eleventh",
    "reward_collapse level_shift divergence kl_blowup value_function entropy_explosion entropy_collapse",
    step=55,
    window=20,
    config={"algo": "PPO", "env": "CartPole"},
)
def poles_pushed_to_fall(tape: Tape) -> None:
    """From 50 on the sign of the advantages is turned around."""

    def at(turn: int, state: dict[str, Any]) -> None:
        state["sign"] = 1.0 if turn < 50 else -1.0

    ppo(tape, at, seed=903)


@fault(
    "eleventh",
    "reward_collapse kl_blowup level_shift value_function bad_resume spike divergence entropy_explosion",
    step=51,
    window=8,
    config={"exp_name": "ppo", "num_envs": 24},
)
def poles_seen_in_a_mirror(tape: Tape) -> None:
    """From 50 on the sensor of the lean is mounted the other way round."""

    def at(turn: int, state: dict[str, Any]) -> None:
        if turn == 50:
            state["seen"] = lambda x: x * torch.tensor([1.0, 1.0, -1.0, -1.0])

    ppo(tape, at, seed=904, names=CLEAN)


@fault(
    "eleventh",
    "kl_blowup clip_saturated reward_collapse entropy_collapse value_function",
    step=46,
    window=12,
    config={"algo": "PPO", "env": "CartPole"},
)
def poles_far_too_fast(tape: Tape) -> None:
    """From 45 on 25 passes are made over each collection, at six times the rate."""

    def at(turn: int, state: dict[str, Any]) -> None:
        if turn >= 45:
            state["passes"], state["rate"] = 25, 1.5e-2

    ppo(tape, at, seed=905, turns=75)


class Squares:
    """A field of 5 by 5 with holes, in which one walks to a corner."""

    HOLES = (7, 13, 16)

    def __init__(self, count: int) -> None:
        self.count = count
        self.at, self.age, self.won = torch.zeros(count, dtype=torch.long), torch.zeros(count), torch.zeros(count)
        self.broken = False

    def step(self, way: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Walk; returns rewards, who is done, and the returns of those."""
        row, column = self.at // 5, self.at % 5
        row = (row + (way == 0).long() - (way == 1).long()).clamp(0, 4)
        column = (column + (way == 2).long() - (way == 3).long()).clamp(0, 4)
        if not self.broken:
            self.at = row * 5 + column
        self.age += 1
        hole = torch.isin(self.at, torch.tensor(self.HOLES))
        there = self.at == 24
        reward = 1.0 * there - 0.5 * hole - 0.01
        self.won += reward
        done = hole | there | (self.age >= 30)
        ended = self.won[done].clone()
        self.at[done] = torch.randint(0, 5, (int(done.sum()),))
        self.age[done], self.won[done] = 0, 0
        return reward, done, ended


def walk(
    tape: Tape, at: Change | None = None, seed: int = 911, steps: int = 900, every: int = 10, discount: float = 0.95
) -> None:
    """Squares by the values of actions; every tenth step in the names of SB3's DQN."""
    torch.manual_seed(seed)
    field, net = Squares(8), dense((25, 64, 4), nn.ReLU)
    kept = twin(net)
    optimizer = torch.optim.Adam(net.parameters(), 4e-3)
    memory: list[tuple[torch.Tensor, ...]] = []
    recent: list[float] = []
    state: dict[str, Any] = {"field": field, "discount": discount, "net": net, "sync": 40, "scale": 1.0, "floor": 0.05}
    seen = torch.eye(25)

    def act(step: int) -> Values | None:
        nonlocal kept
        if at is not None:
            at(step, state)
        odds = max(state["floor"], 1 - step / 300)
        before = field.at.clone()
        with torch.no_grad():
            chosen = net(seen[before]).argmax(1)
        chosen = torch.where(torch.rand(8) < odds, torch.randint(0, 4, (8,)), chosen)
        reward, done, ended = field.step(chosen)
        recent.extend(ended.tolist())
        del recent[:-60]
        # What follows the last step of a game is not its next state, and does not count.
        memory.append((before, chosen, reward * state["scale"], field.at.clone(), done.float()))
        del memory[:-400]
        picks = torch.randint(0, len(memory), (8,)).tolist()
        s, a, r, n, d = (torch.cat([memory[pick][part] for pick in picks]) for part in range(5))
        with torch.no_grad():
            wanted = r + state["discount"] * (1 - d) * kept(seen[n]).max(1).values
        values = net(seen[s]).gather(1, a[:, None])[:, 0]
        loss = F.smooth_l1_loss(values, wanted)
        learn(optimizer, loss, 10.0)
        if step % state["sync"] == 0:
            kept = twin(net)
        if step % every:
            return None
        found = {"train/loss": loss, "rollout/exploration_rate": odds, "train/q_mean": values.mean()}
        return found | ({"rollout/ep_rew_mean": mean(recent)} if recent else {})

    drive(tape, steps, act)


@healthy("eleventh", config={"algo": "DQN", "gamma": 0.95, "target_update_interval": 40})
def healthy_squares(tape: Tape) -> None:
    """A field with holes by the values of actions."""
    walk(tape)


@fault(
    "eleventh",
    "divergence absurd_loss level_shift value_function spike",
    step=470,
    window=170,
    config={"algo": "DQN", "gamma": 0.95},
)
def squares_worth_more_and_more(tape: Tape) -> None:
    """From 400 on what follows counts 1.15 times: values grow without bound."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step >= 400:
            state["discount"], state["sync"] = 1.15, 5

    walk(tape, at, seed=912)


@fault(
    "eleventh",
    "dead_environment reward_collapse level_shift constant",
    step=540,
    window=130,
    config={"algo": "DQN", "gamma": 0.95},
)
def squares_that_cannot_be_left(tape: Tape) -> None:
    """From 450 on no step moves anybody: each game ends with the same return."""

    def at(step: int, state: dict[str, Any]) -> None:
        state["field"].broken = step >= 450

    walk(tape, at, seed=913, steps=1000)


def sac(
    tape: Tape, at: Change | None = None, seed: int = 921, steps: int = 500, every: int = 5, rate: float = 3e-3
) -> None:
    """Drones that fly to a place in a plane, by two critics and a policy with a temperature: rl_zoo's names for SAC."""
    torch.manual_seed(seed)
    actor, critics = dense((4, 32, 32, 4), nn.ReLU), nn.ModuleList(dense((6, 48, 48, 1), nn.ReLU) for _ in range(2))
    kept = twin(critics)
    heat = torch.zeros(1, requires_grad=True)
    of_actor, of_critics = torch.optim.Adam(actor.parameters(), rate), torch.optim.Adam(critics.parameters(), rate)
    of_heat = torch.optim.Adam([heat], rate)
    state: dict[str, Any] = {"scale": 1.0, "of_critics": of_critics, "critics": critics, "actor": actor, "rate": rate}
    place = {"at": torch.rand(8, 4) * 2 - 1}
    memory: list[tuple[torch.Tensor, ...]] = []
    recent: list[float] = []
    won = {"sum": torch.zeros(8)}

    def drawn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle, log = actor(x).chunk(2, -1)
        odds = torch.distributions.Normal(middle, log.clamp(-4, 1).exp())
        raw = odds.rsample()
        sure = odds.log_prob(raw) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return raw.tanh(), sure.sum(-1)

    def best(nets: Any, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return torch.stack([net(torch.cat([x, a], -1))[:, 0] for net in nets])

    def act(step: int) -> Values | None:
        if at is not None:
            at(step, state)
        set_rate(of_critics, state["rate"])
        before = place["at"]
        with torch.no_grad():
            way, _ = drawn(before)
        after = before.clone()
        after[:, :2] = (before[:, :2] + 0.3 * way + 0.02 * torch.randn(8, 2)).clamp(-2, 2)
        reward = -(after[:, :2] - after[:, 2:]).norm(dim=1) - 0.05 * way.square().sum(1)
        won["sum"] += reward
        end = step % 15 == 14
        if end:
            recent.append(float(won["sum"].mean()))
            del recent[:-5]
            won["sum"] = torch.zeros(8)
        place["at"] = torch.rand(8, 4) * 2 - 1 if end else after
        memory.append((before, way, state["scale"] * reward, after))
        chosen = [memory[pick] for pick in torch.randint(0, len(memory), (8,)).tolist()]
        x, a, r, n = (torch.cat([each[part] for each in chosen]) for part in range(4))
        with torch.no_grad():
            following, sure = drawn(n)
            wanted = r + 0.9 * (best(kept, n, following).min(0).values - heat.exp() * sure)
        missed = (best(critics, x, a) - wanted).square().mean()
        learn(of_critics, missed)
        way, sure = drawn(x)
        loss = (heat.exp().detach() * sure - best(critics, x, way).min(0).values).mean()
        learn(of_actor, loss)
        warm = -(heat * (sure.detach() - 2.0).mean())
        learn(of_heat, warm.sum())
        for old, new in zip(kept.parameters(), critics.parameters(), strict=True):
            old.lerp_(new.detach(), 0.02)
        if step % every or not recent:
            return None
        found = {"train/critic_loss": missed, "train/actor_loss": loss, "train/ent_coef": heat.exp()}
        return found | {"rollout/ep_rew_mean": mean(recent), "train/ent_coef_loss": warm.sum()}

    drive(tape, steps, act)


@healthy("eleventh", config={"algo": "SAC", "ent_coef": "auto", "gamma": 0.9})
def healthy_drones(tape: Tape) -> None:
    """Drones that fly to a place."""
    sac(tape)


@fault(
    "eleventh",
    "level_shift divergence spike value_function absurd_loss",
    step=261,
    window=30,
    config={"algo": "SAC", "ent_coef": "auto"},
)
def drones_rewarded_in_other_units(tape: Tape) -> None:
    """From 255 on the rewards are a hundred times as large."""

    def at(step: int, state: dict[str, Any]) -> None:
        state["scale"] = 1.0 if step < 255 else 100.0

    sac(tape, at, seed=922)


class Teller(nn.Module):  # type: ignore[misc]
    """Says eight signs after a sign that asks, the last of ten of which ends it."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.asks, self.signs, self.places = nn.Embedding(9, width), nn.Embedding(11, width), nn.Embedding(12, width)
        self.net = dense((width, 64, 10), nn.GELU)

    def scores(self, ask: torch.Tensor, before: torch.Tensor, place: int | torch.Tensor) -> torch.Tensor:
        """The scores of the next sign."""
        return self.net(self.asks(ask) + self.signs(before) + self.places(torch.as_tensor(place)))

    def sure(self, ask: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        """The logarithms of the chances of each sign of some texts."""
        before = torch.cat([torch.full((len(said), 1), 10), said[:, :-1]], 1)
        scores = self.scores(ask[:, None], before, torch.arange(said.shape[1]))
        return scores.log_softmax(-1)

    @torch.no_grad()
    def say(self, ask: torch.Tensor, longest: int = 10) -> torch.Tensor:
        """Texts; what comes after the end is the sign that ends."""
        said, over = [torch.full((len(ask),), 10)], torch.zeros(len(ask), dtype=torch.bool)
        for place in range(longest):
            next_sign = torch.multinomial(self.scores(ask, said[-1], place).softmax(-1), 1)[:, 0]
            next_sign = next_sign.masked_fill(over, 9)
            over |= next_sign == 9
            said.append(next_sign)
        return torch.stack(said[1:], 1)


def lengths(said: torch.Tensor) -> torch.Tensor:
    """How many signs were said before the end."""
    return (said != 9).float().cumprod(1).sum(1)


def good(ask: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    """The share of what was said that is the sign that asks or the one after it, for texts of about five."""
    counted = (said != 9).float().cumprod(1)
    right = ((said == ask[:, None]) | (said == (ask[:, None] + 1) % 9)).float()
    share = (right * counted).sum(1) / counted.sum(1).clamp(1)
    return share - 0.05 * (lengths(said) - 5).abs()


VERL = {
    "reward": "critic/score/mean",
    "length": "response_length/mean",
    "kl": "actor/ppo_kl",
    "entropy": "actor/entropy",
    "norm": "actor/grad_norm",
    "loss": "actor/pg_loss",
    "clipped": "response_length/clip_ratio",
    "clip": "actor/pg_clipfrac",
    "lr": "actor/lr",
}
TRL = {
    "reward": "reward",
    "spread": "reward_std",
    "none": "frac_reward_zero_std",
    "length": "completions/mean_length",
    "clipped": "completions/clipped_ratio",
    "home": "kl",
    "entropy": "entropy",
    "norm": "grad_norm",
    "lr": "learning_rate",
    "loss": "loss",
}


def grpo(
    tape: Tape,
    at: Change | None = None,
    seed: int = 931,
    steps: int = 200,
    names: dict[str, str] = TRL,
    beta: float = 0.02,
    rate: float = 8e-4,
) -> None:
    """Texts that are rewarded, eight to each question; after a short training on samples."""
    torch.manual_seed(seed)
    policy = Teller()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    for _ in range(60):
        ask = torch.randint(0, 9, (64,))
        said = torch.randint(0, 10, (64, 10))
        own = torch.rand(64, 10) < 0.25
        said = torch.where(own, ask[:, None].expand(-1, 10), said)
        learn(optimizer, F.nll_loss(policy.sure(ask, said).flatten(0, 1), said.flatten()))
    home = twin(policy)
    optimizer = torch.optim.Adam(policy.parameters(), rate)
    state: dict[str, Any] = {"reward": good, "rate": rate, "beta": beta, "policy": policy, "sign": 1.0, "chance": 0.0}

    def act(step: int) -> Values:
        if at is not None:
            at(step, state)
        now = set_rate(optimizer, state["rate"])
        ask = torch.randint(0, 9, (12,)).repeat_interleave(8)
        said = policy.say(ask)
        counted = torch.cat([torch.ones(96, 1), (said != 9).float().cumprod(1)[:, :-1]], 1)
        reward = state["reward"](ask, said)
        group = reward.view(12, 8)
        edge = ((group - group.mean(1, keepdim=True)) / (group.std(1, keepdim=True) + 1e-4)).flatten()
        with torch.no_grad():
            old = policy.sure(ask, said).gather(2, said[..., None])[..., 0]
            far = home.sure(ask, said).gather(2, said[..., None])[..., 0]
        for _ in range(2):
            sure = policy.sure(ask, said)
            own = sure.gather(2, said[..., None])[..., 0]
            ratio = (own - old).exp()
            surrogate = torch.min(ratio * edge[:, None], ratio.clamp(0.8, 1.2) * edge[:, None])
            away = (far - own).exp() - (far - own) - 1
            entropy = -(sure.exp() * sure).sum(-1)
            each = -state["sign"] * surrogate + state["beta"] * away - state["chance"] * entropy
            loss = (each * counted).sum() / counted.sum()
            norm = learn(optimizer, loss, 1.0)
        total = counted.sum()
        found = {
            "reward": reward.mean(),
            "spread": group.std(1).mean(),
            "none": (group.std(1) < 1e-6).float().mean(),
            "length": lengths(said).mean(),
            "clipped": (lengths(said) == 10).float().mean(),
            "kl": ((old - own) * counted).sum() / total,
            "home": (away * counted).sum() / total,
            "entropy": (entropy * counted).sum() / total,
            "norm": norm,
            "lr": now,
            "loss": loss,
            "clip": (((ratio - 1).abs() > 0.2) * counted).sum() / total,
        }
        return {names[name]: value for name, value in found.items() if name in names}

    drive(tape, steps, act)


@healthy("eleventh", config={"trainer": "GRPOTrainer", "num_generations": 8, "beta": 0.02, "max_completion_length": 10})
def healthy_told(tape: Tape) -> None:
    """Texts that are rewarded, in the names of TRL."""
    grpo(tape, steps=80)


@healthy("eleventh", config={"algorithm": {"adv_estimator": "grpo"}, "data": {"max_response_length": 10}})
def healthy_told_by_verl(tape: Tape) -> None:
    """The same in the names of verl, slower."""
    grpo(tape, seed=932, names=VERL, rate=5e-4, steps=110)


def long_is_good(ask: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    """A reward by the number of signs."""
    return 0.12 * lengths(said) + 0.1 * good(ask, said)


@fault("eleventh", "length_shift truncation reward_hacking level_shift", step=120, window=35)
def told_ever_longer(tape: Tape) -> None:
    """From 100 on the reward counts signs: the texts fill all there is."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 100:
            state["reward"] = long_is_good

    grpo(tape, at, seed=933)


@fault("eleventh", "zero_advantage reward_collapse dead_environment constant", step=110, window=15)
def told_to_a_deaf_parser(tape: Tape) -> None:
    """From 110 on the parser finds no answer in any text: each reward is 0."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 110:
            state["reward"] = lambda ask, said: torch.zeros(len(ask))

    grpo(tape, at, seed=934, names=TRL)


@fault(
    "eleventh",
    "reward_collapse level_shift entropy_explosion length_shift kl_blowup kl_drift divergence",
    step=130,
    window=30,
    config={"algorithm": {"adv_estimator": "grpo"}},
)
def told_for_the_worst(tape: Tape) -> None:
    """From 120 on the loss has the other sign: what is good becomes rare."""

    def at(step: int, state: dict[str, Any]) -> None:
        state["sign"] = 1.0 if step < 120 else -1.0

    grpo(tape, at, seed=935, names=VERL)


def preferred(
    tape: Tape, at: Change | None = None, seed: int = 941, steps: int = 220, beta: float = 0.1, rate: float = 5e-4
) -> None:
    """Pairs of texts of which one is preferred, in the names of DPOTrainer; every second step."""
    torch.manual_seed(seed)
    policy = Teller()
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    for _ in range(80):
        ask, said = torch.randint(0, 9, (64,)), torch.randint(0, 9, (64, 6))
        said = torch.where(torch.rand(64, 6) < 0.3, ask[:, None].expand(-1, 6), said)
        learn(optimizer, F.nll_loss(policy.sure(ask, said).flatten(0, 1), said.flatten()))
    home = twin(policy)
    optimizer = torch.optim.Adam(policy.parameters(), rate)
    state: dict[str, Any] = {"beta": beta, "rate": rate, "swap": False, "policy": policy, "home": home}

    def act(step: int) -> Values | None:
        if at is not None:
            at(step, state)
        now = set_rate(optimizer, state["rate"])
        ask = torch.randint(0, 9, (32,))
        one, two = (torch.randint(0, 9, (32, 6)) for _ in range(2))
        one = torch.where(torch.rand(32, 6) < 0.45, ask[:, None].expand(-1, 6), one)
        two = torch.where(torch.rand(32, 6) < 0.2, ask[:, None].expand(-1, 6), two)
        if state["swap"]:
            one, two = two, one
        sums = []
        for net in (policy, state["home"]):
            for said in (one, two):
                sums.append(net.sure(ask, said).gather(2, said[..., None])[..., 0].sum(1))
        chosen, rejected = state["beta"] * (sums[0] - sums[2]), state["beta"] * (sums[1] - sums[3])
        loss = -F.logsigmoid(chosen - rejected).mean()
        norm = learn(optimizer, loss, 1.0)
        if step % 2:
            return None
        return {
            "loss": loss,
            "grad_norm": norm,
            "learning_rate": now,
            "rewards/chosen": chosen.mean(),
            "rewards/rejected": rejected.mean(),
            "rewards/margins": (chosen - rejected).mean(),
            "rewards/accuracies": (chosen > rejected).float().mean(),
            "logps/chosen": sums[0].mean(),
            "logps/rejected": sums[1].mean(),
        }

    drive(tape, steps, act)


@healthy("eleventh", config={"trainer": "DPOTrainer", "beta": 0.1, "learning_rate": 5e-4})
def healthy_preferences(tape: Tape) -> None:
    """Pairs of texts."""
    preferred(tape)


@fault("eleventh", "margin_explosion chosen_falls divergence level_shift spike", step=130, window=40)
def preferences_pushed_apart(tape: Tape) -> None:
    """From 110 on the rate is forty times as high: both kinds of texts become ever less likely."""

    def at(step: int, state: dict[str, Any]) -> None:
        state["rate"] = 5e-4 if step < 110 else 2e-2

    preferred(tape, at, seed=942)


@fault("eleventh", JUMP + " accuracy_drop", step=124, window=16)
def preferences_exchanged(tape: Tape) -> None:
    """From 120 on the preferred texts are in the column of the others."""

    def at(step: int, state: dict[str, Any]) -> None:
        state["swap"] = step >= 120

    preferred(tape, at, seed=943, rate=1.5e-3)


def judged(tape: Tape, at: Change | None = None, seed: int = 951, steps: int = 260, wrong: float = 0.1) -> None:
    """A model of rewards from pairs, in the names of RewardTrainer."""
    torch.manual_seed(seed)
    table, net = nn.Embedding(9 * 9, 24), dense((24, 32, 1), nn.Tanh)
    model = nn.ModuleList((table, net))
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    state: dict[str, Any] = {"swap": 0.0, "wrong": wrong, "model": model}

    def act(step: int) -> Values:
        if at is not None:
            at(step, state)
        ask = torch.randint(0, 9, (64,))
        texts = [
            torch.where(torch.rand(64, 8) < torch.rand(64, 1), ask[:, None], torch.randint(0, 9, (64, 8))) for _ in "ab"
        ]
        worth = [good(ask, text) for text in texts]
        first = (worth[0] > worth[1]) ^ (torch.rand(64) < state["wrong"])
        scores = [net(table(ask[:, None] * 9 + text).mean(1))[:, 0] for text in texts]
        margin = (scores[0] - scores[1]) * (first * 2.0 - 1)
        loss = -F.logsigmoid(margin).mean()
        norm = learn(optimizer, loss, 1.0)
        both = torch.cat(scores)
        return {
            "loss": loss,
            "accuracy": (margin > 0).float().mean(),
            "margin": margin.mean(),
            "mean_reward": both.mean(),
            "max_reward": both.max(),
            "min_reward": both.min(),
            "grad_norm": norm,
        }

    drive(tape, steps, act)


@healthy("eleventh", config={"trainer": "RewardTrainer", "max_steps": 260})
def healthy_judge(tape: Tape) -> None:
    """A model of rewards from pairs of which one in ten is marked wrongly."""
    judged(tape)


@fault("eleventh", JUMP + " accuracy_drop", step=140, window=12, config={"trainer": "RewardTrainer"})
def judge_of_the_other_column(tape: Tape) -> None:
    """From 140 on the marks are turned around."""

    def at(step: int, state: dict[str, Any]) -> None:
        state["wrong"] = 0.1 if step < 140 else 0.9

    judged(tape, at, seed=952)


@fault("eleventh", JUMP + " gradient_shift accuracy_drop bad_resume", step=150, window=12)
def judge_table_lost(tape: Tape) -> None:
    """At 150 the table of signs begins anew."""

    def at(step: int, state: dict[str, Any]) -> None:
        if step == 150:
            spoil(state["model"][0], 2.0)

    judged(tape, at, seed=953)
