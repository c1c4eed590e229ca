"""Policies of the sixth set: PPO and SAC steer a mass to the origin, DQN walks a grid, GRPO answers in tokens."""

from copy import deepcopy
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.sixth.tasks import F, Values, descend, fit, layers, nn
from benchmarks.zoo.real.tape import Tape

Normal = torch.distributions.Normal


class Plane:
    """Masses that are pushed on a plane for twenty steps and wanted at its origin."""

    def __init__(self, count: int) -> None:
        self.count, self.at = count, 0
        self.reset()

    def reset(self) -> None:
        """Put all masses somewhere."""
        self.at, self.place, self.speed = 0, 2 * torch.rand(self.count, 2) - 1, torch.zeros(self.count, 2)

    def seen(self, raw: bool = False) -> torch.Tensor:
        """Places, speeds and the time, about one in size; or as sensors give them."""
        parts = (40 + 25 * self.place, 8 * self.speed) if raw else (self.place, 3 * self.speed)
        return torch.cat([*parts, torch.full((self.count, 1), self.at / 20)], 1)

    def push(self, force: torch.Tensor) -> torch.Tensor:
        """Move on and return rewards."""
        self.speed = 0.8 * self.speed + 0.12 * force.clamp(-1, 1) + 0.02 * torch.randn(self.count, 2)
        self.place, self.at = self.place + self.speed, self.at + 1
        return -self.place.norm(dim=1) - 0.02 * force.clamp(-2, 2).pow(2).sum(1)


def ppo(tape: Tape, entropy: float = 0.0, raw: int = 9999, count: int = 130) -> None:
    """Rounds of 24 masses; observations are no longer normalised from a round on. Names of Stable-Baselines3."""
    torch.manual_seed(41)
    actor, critic = layers(5, 32, 32, 2, between=nn.Tanh), layers(5, 32, 32, 1, between=nn.Tanh)
    spread = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), spread], lr=2e-3)

    def update(step: int) -> Values:
        world, rows = Plane(24), []
        with torch.no_grad():
            for _ in range(20):
                seen = world.seen(raw=step >= raw)
                force = Normal(actor(seen), spread.exp()).sample()
                rows.append((seen, force, world.push(force)))
        seen, forces, rewards = (torch.stack(each) for each in zip(*rows, strict=True))
        returns = rewards.flip(0).cumsum(0).flip(0) / 5
        with torch.no_grad():
            values, before = critic(seen)[:, :, 0], Normal(actor(seen), spread.exp()).log_prob(forces).sum(-1)
        gains = (returns - values) / (returns - values).std()
        for _ in range(3):
            for part in torch.randperm(480).split(160):
                ways = Normal(actor(seen.flatten(0, 1)[part]), spread.exp())
                ratio = (ways.log_prob(forces.flatten(0, 1)[part]).sum(-1) - before.flatten()[part]).exp()
                gain = gains.flatten()[part]
                policy = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                value = F.mse_loss(critic(seen.flatten(0, 1)[part])[:, 0], returns.flatten()[part])
                loss = policy + 0.5 * value - entropy * ways.entropy().sum(-1).mean()
                norm = descend(optimizer, loss, 0.5)
        return {
            "rollout/ep_rew_mean": rewards.sum(0).mean(), "train/approx_kl": (ratio - 1 - ratio.log()).mean(),
            "train/clip_fraction": ((ratio - 1).abs() > 0.2).float().mean(), "train/std": spread.exp().mean(),
            "train/entropy_loss": -ways.entropy().sum(-1).mean(), "train/value_loss": value,
            "train/policy_gradient_loss": policy, "train/grad_norm": norm,
            "train/explained_variance": 1 - (returns - values).var() / returns.var(),
        }  # fmt: skip

    fit(tape, count, update)


@healthy("sixth")
def healthy_steering(tape: Tape) -> None:
    """Rewards rise by steps and waver with where the masses begin."""
    ppo(tape)


@fault("sixth", "entropy_explosion reward_collapse norm_growth divergence not_learning plateau")
def steering_spread_grows(tape: Tape) -> None:
    """The deviation of a continuous policy only rises: a coefficient of entropy that was meant for discrete actions."""
    ppo(tape, entropy=0.4)


@fault("sixth", "reward_collapse level_shift accuracy_drop value_function bad_resume kl_blowup", step=75, window=12)
def steering_without_statistics(tape: Tape) -> None:
    """Rewards fall after a resumption: the weights were loaded, the statistics that normalise observations were not."""
    ppo(tape, raw=75)


def sac(tape: Tape, target: float = -2.0) -> None:
    """Two critics, a squashed policy, and a coefficient of entropy that follows a target; logged at fifth updates."""
    torch.manual_seed(42)
    actor, critics = layers(5, 32, 4), nn.ModuleList([layers(7, 48, 1), layers(7, 48, 1)])
    targets = [layers(7, 48, 1), layers(7, 48, 1)]
    for each, own in zip(targets, critics, strict=True):
        each.load_state_dict(own.state_dict())
    scale = nn.Parameter(torch.tensor(-1.0))
    acts, judges = torch.optim.Adam(actor.parameters(), lr=1e-3), torch.optim.Adam(critics.parameters(), lr=2e-3)
    weighs, world, kept = torch.optim.Adam([scale], lr=1e-2), Plane(16), []
    total, last = torch.zeros(16), -20.0

    def chosen(seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = actor(seen).chunk(2, -1)
        ways = Normal(mean, spread.clamp(-4, 1).exp())
        force = ways.rsample()
        return force.tanh(), (ways.log_prob(force) - (1 - force.tanh().pow(2) + 1e-6).log()).sum(-1)

    def judged(networks: Any, seen: torch.Tensor, force: torch.Tensor) -> torch.Tensor:
        return torch.stack([each(torch.cat([seen, force], 1))[:, 0] for each in networks])

    def update(step: int) -> Values | None:
        nonlocal total, last
        with torch.no_grad():
            seen = world.seen()
            force = chosen(seen)[0] if step > 20 else 2 * torch.rand(16, 2) - 1
            reward = world.push(force)
            kept.append((seen, force, reward, world.seen(), torch.full((16,), float(world.at == 20))))
            total = total + reward
            if world.at == 20:
                last, total = 0.7 * last + 0.3 * float(total.mean()), torch.zeros(16)
                world.reset()
        rows = [kept[int(each)] for each in torch.randint(0, len(kept), (6,))]
        seen, force, reward, then, ended = (torch.cat(each) for each in zip(*rows, strict=True))
        with torch.no_grad():
            after, chance = chosen(then)
            value = judged(targets, then, after).amin(0) - scale.exp() * chance
            wanted = reward + 0.95 * (1 - ended) * value
        critic_loss = (judged(critics, seen, force) - wanted).pow(2).mean()
        descend(judges, critic_loss)
        force, chance = chosen(seen)
        actor_loss = (scale.exp().detach() * chance - judged(critics, seen, force).amin(0)).mean()
        descend(acts, actor_loss)
        scale_loss = -(scale * (chance.detach() + target)).mean()
        descend(weighs, scale_loss)
        for each, own in zip(targets, critics, strict=True):
            for slow, fast in zip(each.parameters(), own.parameters(), strict=True):
                slow.data.lerp_(fast.data, 0.02)
        values = {"train/actor_loss": actor_loss, "train/critic_loss": critic_loss, "train/ent_coef": scale.exp()}
        values |= {"train/ent_coef_loss": scale_loss, "rollout/ep_rew_mean": last}
        return values if step % 5 == 4 else None

    fit(tape, 800, update)


@healthy("sixth")
def healthy_soft_actor(tape: Tape) -> None:
    """Coefficient, losses and rewards settle within some hundred updates, all of them noisy."""
    sac(tape)


@fault(
    "sixth", "divergence entropy_explosion reward_collapse absurd_loss norm_growth value_function exploding_gradients"
)
def soft_actor_target_positive(tape: Tape) -> None:
    """The coefficient of entropy rises without end: the target has the wrong sign and cannot be reached."""
    sac(tape, target=2.0)


def dqn(tape: Tape, discount: float = 0.95, masked: bool = True) -> None:
    """A walk on 5 by 5 fields to a corner, logged at every fourth update."""
    torch.manual_seed(43)
    model, target = layers(25, 48, 4), layers(25, 48, 4)
    target.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    moves, place, age = torch.tensor([[0, 1], [1, 0], [0, -1], [-1, 0]]), torch.randint(0, 5, (16, 2)), torch.zeros(16)
    kept: list[Any] = []
    length = 25.0

    def coded(places: torch.Tensor) -> torch.Tensor:
        return F.one_hot(places[:, 0] * 5 + places[:, 1], 25).float()

    def update(step: int) -> Values | None:
        nonlocal place, age, length
        chance = max(0.05, 1 - step / 300)
        with torch.no_grad():
            best = model(coded(place)).argmax(1)
        way = torch.where(torch.rand(16) < chance, torch.randint(0, 4, (16,)), best)
        then = (place + moves[way]).clamp(0, 4)
        done = (then == 4).all(1)
        age = age + 1
        kept.append((place, way, done.float() - 0.02, then, done.float()))
        ended = done | (age >= 25)
        for each in age[ended]:
            length = 0.95 * length + 0.05 * float(each)
        age = torch.where(ended, 0.0, age)
        place = torch.where(ended[:, None], torch.randint(0, 4, (16, 2)), then)
        rows = [kept[int(each)] for each in torch.randint(max(0, len(kept) - 250), len(kept), (4,))]
        seen, way, reward, then, final = (torch.cat(each) for each in zip(*rows, strict=True))
        with torch.no_grad():
            ahead = target(coded(then)).amax(1) * (1 - final if masked else 1)
        scores = model(coded(seen)).gather(1, way[:, None])[:, 0]
        loss = F.smooth_l1_loss(scores, reward + discount * ahead)
        descend(optimizer, loss, 10.0)
        if step % 8 == 0:
            target.load_state_dict(model.state_dict())
        values = {"train/loss": loss, "train/q_mean": scores.mean(), "rollout/exploration_rate": chance}
        return values | {"rollout/ep_len_mean": length} if step % 4 == 3 else None

    fit(tape, 1000, update)


@healthy("sixth")
def healthy_walk(tape: Tape) -> None:
    """The loss rises first, as values do, and episodes become shorter."""
    dqn(tape)


@fault("sixth", "value_function divergence norm_growth reward_collapse level_shift")
def walk_without_ends(tape: Tape) -> None:
    """Values rise without end though no return is above one: ends are not masked, and nothing is discounted."""
    dqn(tape, discount=1.0, masked=False)


class Answerer(nn.Module):
    """Answers a digit token by token: ten digits, two for filling, and the end."""

    def __init__(self) -> None:
        super().__init__()
        self.digits, self.tokens = nn.Embedding(10, 12), nn.Embedding(13, 12)
        self.places, self.head = nn.Embedding(14, 6), layers(30, 64, 13)

    def forward(self, given: torch.Tensor, before: torch.Tensor, at: torch.Tensor) -> Any:
        """Scores of the next token."""
        return self.head(torch.cat([self.digits(given), self.tokens(before), self.places(at)], -1))

    def sampled(self, given: torch.Tensor, limit: int) -> torch.Tensor:
        """Answers of at most so many tokens, after the one that begins them."""
        rows, ended = [torch.full_like(given, 10)], torch.zeros(len(given), dtype=torch.bool)
        for at in range(limit):
            shares = self(given, rows[-1], torch.full_like(given, at)).softmax(1)
            rows.append(torch.where(ended, 12, torch.multinomial(shares, 1)[:, 0]))
            ended |= rows[-1] == 12
        return torch.stack(rows, 1)

    def chances(self, given: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logarithms of the chances of all tokens, which of them count, and the entropy."""
        length = rows.shape[1] - 1
        shares = self(given[:, None].expand(-1, length), rows[:, :-1], torch.arange(length).expand(len(rows), -1))
        shares, mask = shares.log_softmax(-1), (rows[:, :-1] != 12).float()
        entropy = -(shares.exp() * shares).sum(-1)
        return shares.gather(2, rows[:, 1:, None])[:, :, 0], mask, (entropy * mask).sum() / mask.sum()

    def taught(self) -> None:
        """Learn to fill, to answer, with every second answer wrong, and to end."""
        optimizer = torch.optim.Adam(self.parameters(), lr=5e-3)
        for _ in range(100):
            given, filled = torch.randint(0, 10, (48,)), torch.randint(5, 10, (48, 1))
            answer = torch.where(torch.rand(48) < 0.5, (3 * given + 1) % 10, torch.randint(0, 10, (48,)))
            places = torch.arange(14).expand(48, -1)
            rows = torch.where(places < filled, 10 + (torch.rand(48, 14) < 0.5).long(), 12)
            rows = torch.where(places == filled, answer[:, None], rows)
            rows[:, 0] = 10
            chance, mask, _ = self.chances(given, rows)
            descend(optimizer, -(chance * mask).sum() / mask.sum())


def grpo(tape: Tape, shorter: int = 9999) -> None:
    """Answer a digit with another after some filling, in groups of eight; fewer tokens are allowed from a step on."""
    torch.manual_seed(44)
    policy = Answerer()
    policy.taught()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1.5e-3)
    reference = deepcopy(policy)

    def update(step: int) -> Values:
        limit = 4 if step >= shorter else 13
        given = torch.randint(0, 10, (8,)).repeat_interleave(8)
        with torch.no_grad():
            rows = policy.sampled(given, limit)
            ended = rows[:, -1] == 12
            lengths = (rows[:, 1:] != 12).sum(1)
            last = rows.gather(1, lengths[:, None])[:, 0]
            reward = (ended & (last == (3 * given + 1) % 10)).float()
            first = reference.chances(given, rows)[0]
        groups = reward.view(8, 8)
        gains = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
        chance, mask, entropy = policy.chances(given, rows)
        apart = ((first - chance).exp() - 1 - (first - chance)) * mask
        each = -(chance - chance.detach()).exp() * gains[:, None] * mask + 0.02 * apart
        loss = each.sum() / mask.sum()
        return {
            "loss": loss, "grad_norm": descend(optimizer, loss, 1.0), "reward": reward.mean(),
            "reward_std": groups.std(1).mean(), "frac_reward_zero_std": (groups.std(1) == 0).float().mean(),
            "completions/mean_length": lengths.float().mean(), "completions/clipped_ratio": 1 - ended.float().mean(),
            "kl": apart.sum() / mask.sum(), "entropy": entropy,
        }  # fmt: skip

    fit(tape, 260, update)


@healthy("sixth", config={"num_generations": 8, "beta": 0.02})
def healthy_answers(tape: Tape) -> None:
    """Rewards rise with much noise, from 64 answers a step."""
    grpo(tape)


@fault("sixth", "truncation zero_advantage reward_collapse length_shift level_shift", step=150, window=25)
def answers_cut_off(tape: Tape) -> None:
    """All answers are as long as is allowed, none ends, and rewards are zero: a smaller limit came with a restart."""
    grpo(tape, shorter=150)
