"""Policies of the ninth set: answers by groups with a sampler of its own, pairs, judges, and actions from a log."""

import copy
from collections.abc import Callable

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.ninth.tasks import F, Rate, Speaks, Values, dense, drive, half_wave, learn, nn, set_rate
from benchmarks.zoo.real.tape import Tape

END, LONGEST = 10, 10
Reward = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def chances_of(model: Speaks, rows: torch.Tensor) -> torch.Tensor:
    """Logarithms of the chances of the eleven tokens of an answer, at each of its places."""
    return model(rows[:, :-1])[:, 1:, :11].log_softmax(-1)


@torch.no_grad()  # type: ignore[untyped-decorator]
def answers(model: Speaks, asked: torch.Tensor, heat: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sampled answers after their questions, which places were said, and how likely each was."""
    rows, open_ = asked, torch.ones(len(asked), dtype=torch.bool)
    told, likely = [], []
    for _ in range(LONGEST):
        scores = (model(rows)[:, -1, :11] / heat).log_softmax(-1)
        said = torch.where(open_, torch.multinomial(scores.exp(), 1)[:, 0], END)
        told.append(open_)
        likely.append(scores.gather(1, said[:, None])[:, 0])
        rows, open_ = torch.cat([rows, said[:, None]], 1), open_ & (said != END)
    return rows, torch.stack(told, 1), torch.stack(likely, 1)


def sums_up(step: int, rows: torch.Tensor, told: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """How much of what was said is the last digit of the sum of the two that were asked, and a bit for an end."""
    wanted = (rows[:, :1] + rows[:, 1:2] - 22) % 10
    hits = ((rows[:, 2:] == wanted) & told).sum(1)
    return hits / (lengths - (lengths < LONGEST).float()).clamp_min(1) * 0.9 + 0.1 * (lengths < LONGEST)


def reason(
    tape: Tape,
    steps: int = 160,
    reward: Reward = sums_up,
    fetched: Callable[[int], bool] = lambda step: True,
    heat: Callable[[int], float] = lambda step: 1.0,
    names: str = "prime",
    rate: Rate = lambda step: 2e-3,
    groups: int = 8,
) -> None:
    """Groups of six answers to eight questions by a sampler in half precision, in prime-rl's or tinker's names."""
    torch.manual_seed(101)
    policy = Speaks(width=24, tokens=21)
    first = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(60):
        rows = torch.cat([torch.randint(11, 15, (32, 2)), torch.randint(0, 11, (32, LONGEST))], 1)
        rows[:, 4] = torch.where(torch.rand(32) < 0.5, (rows[:, 0] + rows[:, 1] - 22) % 10, rows[:, 4])
        learn(first, -chances_of(policy, rows).gather(2, rows[:, 2:, None]).mean())
    sampler = copy.deepcopy(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
    spell = {
        "prime": ("train/agg/effective/agent/reward/mean", "entropy/all/mean", "mismatch_kl/all/mean"),
        "tinker": ("env/all/reward/total", "optim/entropy", "optim/kl_sample_train_v1"),
    }[names]
    more = {
        "prime": ("train/agg/effective/agent/num_output_tokens/mean", "train/agg/effective/agent/is_truncated/mean"),
        "tinker": ("env/all/ac_tokens_per_turn", "env/all/stop/max_tokens"),
    }[names]

    def act(step: int) -> Values:
        now = set_rate(optimizer, rate(step))
        if fetched(step):
            sampler.load_state_dict(policy.state_dict())
        asked = torch.randint(11, 15, (groups, 2)).repeat_interleave(6, 0)
        rows, told, old = answers(sampler, asked, heat(step))
        old = old + 0.02 * torch.randn_like(old)
        lengths = told.sum(1).float()
        rewards = reward(step, rows, told, lengths).view(groups, 6)
        gains = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-2)).view(-1, 1)
        chances = chances_of(policy, rows)
        own = chances.gather(2, rows[:, 2:, None])[..., 0]
        ratio = (own - old).exp()
        better = torch.minimum(ratio * gains, ratio.clamp(0.8, 1.2) * gains)
        unsure = (-(chances.exp() * chances).sum(-1) * told).sum() / told.sum()
        loss = -(better * told).sum() / told.sum() - 0.005 * unsure
        norm = learn(optimizer, loss, 1.0)
        away = (((ratio - 1) - (own - old)) * told).sum() / told.sum()
        cut = (lengths >= LONGEST).float().mean()
        same = (rewards.std(1) < 1e-6).float().mean()
        found = dict(zip((*spell, *more), (rewards.mean(), unsure, away, lengths.mean(), cut), strict=True))
        found |= {"optim/grad_norm": norm, "optim/lr": now}
        if names == "tinker":
            found["env/all/by_group/frac_mixed"] = 1 - same
        return found

    drive(tape, steps, act)


@healthy("ninth")
def healthy_reasoning(tape: Tape) -> None:
    """The reward rises in the noise of few questions; answers become short, as is wanted."""
    reason(tape)


@healthy("ninth")
def healthy_reasoning_slowly(tape: Tape) -> None:
    """Four questions a step and a low rate with a warm-up: it rises, and nearly all that is seen is noise."""
    reason(tape, names="tinker", groups=4, rate=half_wave(180, 1.5e-3, 20, 2e-4), steps=180)


@fault("ninth", "reward_collapse level_shift failed_rollouts dead_environment zero_advantage", step=100, window=15)
def reasoning_one_judge_down(tape: Tape) -> None:
    """One of two services that judge answers is down from step 100 on, and its half of the rewards is 0."""

    def reward(step: int, rows: torch.Tensor, told: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        given = sums_up(step, rows, told, lengths)
        return torch.where(torch.arange(len(given)) % 12 < 6, 0.0, given) if step >= 100 else given

    reason(tape, reward=reward)


@fault("ninth", "mismatch stale_rollouts kl_blowup kl_drift reward_collapse level_shift", step=70, window=25)
def reasoning_weights_not_fetched(tape: Tape) -> None:
    """The sampler cannot write its weights since step 70 and goes on with those it has: the two move apart."""
    reason(tape, fetched=lambda step: step < 70)


@fault("ninth", "length_shift truncation reward_hacking level_shift", step=80, window=45)
def reasoning_paid_by_length(tape: Tape) -> None:
    """A penalty for short answers counts ten times since step 80: all answers grow to the limit and are cut."""

    def reward(step: int, rows: torch.Tensor, told: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        given = sums_up(step, rows, told, lengths)
        return given + 0.3 * lengths if step >= 80 else given

    reason(tape, reward=reward, steps=200)


@fault("ninth", "entropy_collapse zero_advantage mismatch kl_blowup level_shift length_shift", step=60, window=25)
def reasoning_sampled_cold(tape: Tape) -> None:
    """The temperature of a test, 0.05, is left in the service after step 60: the answers of a group are all alike."""
    reason(tape, heat=lambda step: 0.05 if step >= 60 else 1.0, names="tinker")


def prefer(
    tape: Tape,
    steps: int = 260,
    rate: Rate = lambda step: 1e-3,
    swap: Callable[[int], bool] = lambda step: False,
    own_reference: bool = False,
    few: int = 0,
) -> None:
    """Prefer the better of two answers to a reference, in the names of TRL, every second step."""
    torch.manual_seed(102)
    policy = Speaks(width=24, tokens=21)
    first = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(50):
        rows = torch.cat([torch.randint(11, 21, (32, 2)), torch.randint(0, 11, (32, LONGEST))], 1)
        learn(first, -chances_of(policy, rows).gather(2, rows[:, 2:, None]).mean())
    reference = policy if own_reference else copy.deepcopy(policy)
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)

    def likely(model: Speaks, rows: torch.Tensor) -> torch.Tensor:
        return chances_of(model, rows).gather(2, rows[:, 2:, None])[..., 0].sum(1)

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, rate(step))
        seed = torch.random.get_rng_state()
        if few:
            torch.random.manual_seed(step % few)
        asked = torch.randint(11, 21, (16, 2))
        good, bad = (torch.cat([asked, torch.randint(0, 11, (16, LONGEST))], 1) for _ in range(2))
        good[:, 2:6] = torch.where(torch.rand(16, 4) < 0.6, (asked[:, :1] - 11) % 10, good[:, 2:6])
        if few:
            torch.random.set_rng_state(seed)
        if swap(step):
            good, bad = bad, good
        chosen, rejected = likely(policy, good), likely(policy, bad)
        if own_reference:
            old = chosen.detach(), rejected.detach()
        else:
            with torch.no_grad():
                old = likely(reference, good), likely(reference, bad)
        gains = 0.2 * (chosen - old[0]), 0.2 * (rejected - old[1])
        loss = -F.logsigmoid(gains[0] - gains[1]).mean()
        norm = learn(optimizer, loss)
        if step % 2:
            return None
        found = {"loss": loss, "rewards/chosen": gains[0].mean(), "rewards/rejected": gains[1].mean()}
        found |= {"rewards/margins": (gains[0] - gains[1]).mean(), "logps/chosen": chosen.mean()}
        return found | {
            "rewards/accuracies": (gains[0] > gains[1]).float().mean(),
            "grad_norm": norm,
            "learning_rate": now,
        }

    drive(tape, steps, act)


@healthy("ninth")
def healthy_preferences(tape: Tape) -> None:
    """Pairs of which some cannot be told apart; the margin grows to about two."""
    prefer(tape, rate=half_wave(260, 1e-3, 20))


@fault("ninth", "not_learning constant plateau weights_frozen vanishing_gradients dead_environment")
def preferences_reference_is_the_policy(tape: Tape) -> None:
    """The reference is the same object as the policy: rewards are all zero and the loss stays ln 2."""
    prefer(tape, own_reference=True, steps=200)


@fault("ninth", "level_shift spike divergence accuracy_drop margin_explosion chosen_falls", step=140)
def preferences_shard_swapped(tape: Tape) -> None:
    """The columns of the second file stand in the other order: from step 140 on the worse answer is preferred."""
    prefer(tape, swap=lambda step: step >= 140, rate=lambda step: 5e-4)


@fault("ninth", "margin_explosion chosen_falls easy_pairs too_good overfit")
def preferences_rate_of_pretraining(tape: Tape) -> None:
    """The rate of pre-training, on 80 pairs, again and again: all are right, and chosen answers become less likely."""
    prefer(tape, rate=lambda step: 6e-3, few=5)


def rate_answers(tape: Tape, told: float, steps: int = 240) -> None:
    """Learn a reward from pairs, of which some are labelled by chance, in the names of OpenRLHF."""
    torch.manual_seed(103)
    body, head = Speaks(width=24, tokens=21), nn.Linear(24, 1)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-3)

    def worth(rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = head(body.features(rows).mean(1))[:, 0]
        return found

    def act(step: int) -> Values | None:
        now = set_rate(optimizer, half_wave(steps, 2e-3, 15)(step))
        first, second = torch.randint(0, 21, (24, 10)), torch.randint(0, 21, (24, 10))
        first[:, 2:5] = torch.where(torch.rand(24, 3) < 0.5, 7, first[:, 2:5])
        turned = (torch.rand(24) > told)[:, None]
        chosen, reject = worth(torch.where(turned, second, first)), worth(torch.where(turned, first, second))
        loss = -F.logsigmoid(chosen - reject).mean()
        learn(optimizer, loss, 1.0)
        values = {"train/loss": loss, "train/acc": (chosen > reject).float().mean(), "train/lr": now}
        return (
            values | {"train/chosen_reward": chosen.mean(), "train/reject_reward": reject.mean()} if step % 2 else None
        )

    drive(tape, steps, act)


@healthy("ninth")
def healthy_rating(tape: Tape) -> None:
    """One pair in ten is labelled the other way round, so that the accuracy stays below that share."""
    rate_answers(tape, 0.9)


@fault("ninth", "not_learning plateau oscillation")
def rating_labels_lost(tape: Tape) -> None:
    """Which answer was chosen was lost when the pairs were shuffled: an accuracy of a half, and a loss of ln 2."""
    rate_answers(tape, 0.5)


def from_log(
    tape: Tape,
    steps: int = 400,
    ends: bool = True,
    discount: float = 0.9,
    paid: Callable[[int], float] = lambda step: 1.0,
    nears: float = 0.05,
    rate: float = 2e-3,
) -> None:
    """Values of actions from a log of moves along a corridor, in the names of CORL, every fourth step."""
    torch.manual_seed(104)
    values, ahead = dense((9, 48, 3)), dense((9, 48, 3))
    ahead.load_state_dict(values.state_dict())
    optimizer = torch.optim.Adam(values.parameters(), lr=rate)

    def act(step: int) -> Values | None:
        place, move = torch.randint(0, 8, (64,)), torch.randint(0, 3, (64,))
        after = (place + move - 1).clamp(0, 8)
        gain = paid(step) * ((after == 8).float() - 0.02 + 0.05 * torch.randn(64))
        own = values(F.one_hot(place, 9).float()).gather(1, move[:, None])[:, 0]
        with torch.no_grad():
            later = ahead(F.one_hot(after, 9).float()).max(1).values
            wanted = gain + discount * later * (1 - (after == 8).float() if ends else 1.0)
        loss = F.mse_loss(own, wanted)
        learn(optimizer, loss)
        with torch.no_grad():
            for old, new in zip(ahead.parameters(), values.parameters(), strict=True):
                old.lerp_(new, nears)
        return {"q_loss": loss, "q_values": own.mean(), "target_q": wanted.mean()} if step % 4 == 0 else None

    drive(tape, steps, act)


@healthy("ninth")
def healthy_log_of_moves(tape: Tape) -> None:
    """Values rise from zero until they are those of the corridor, and the loss with them at first."""
    from_log(tape)


@fault("ninth", "divergence value_function exploding_gradients absurd_loss level_shift not_learning")
def log_without_ends(tape: Tape) -> None:
    """Ends are not marked in the log, and the discount is above one by a typing error: values grow without end."""
    from_log(tape, ends=False, discount=1.1, rate=4e-3, nears=0.5)


@fault("ninth", "level_shift spike divergence value_function exploding_gradients", step=220, window=16)
def log_rewards_of_another_unit(tape: Tape) -> None:
    """The second part of the log has its rewards in points, of which a hundred make one."""
    from_log(tape, paid=lambda step: 100.0 if step >= 220 else 1.0)


def imitate(tape: Tape, unit: Callable[[int], float] = lambda step: 1.0, steps: int = 300) -> None:
    """Clone the pushes of somebody who balances a stick, with a mixture of two normals, in the names of robomimic."""
    torch.manual_seed(105)
    model = dense((4, 40, 6), nn.ELU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def act(step: int) -> Values | None:
        seen = torch.randn(32, 4)
        aside = torch.where(torch.rand(32) < 0.3, -1.0, 1.0)
        pushed = unit(step) * (aside * seen[:, 0].abs() + 0.5 * seen[:, 1] + 0.2 * torch.randn(32))
        middle, wide, part = model(seen).chunk(3, 1)
        near = torch.distributions.Normal(middle, F.softplus(wide) + 0.05).log_prob(pushed[:, None])
        loss = -(near + part.log_softmax(1)).logsumexp(1).mean()
        norm = learn(optimizer, loss, 10.0)
        return (
            {"Train/Log_Likelihood": -loss, "Train/Loss": loss, "Train/Policy_Grad_Norms": norm}
            if step % 3 == 0
            else None
        )

    drive(tape, steps, act)


@healthy("ninth")
def healthy_imitation(tape: Tape) -> None:
    """A likelihood that rises above zero and a loss that falls below it."""
    imitate(tape)


@fault("ninth", "level_shift spike divergence exploding_gradients gradient_shift", step=165)
def imitation_of_degrees(tape: Tape) -> None:
    """Another operator's recordings, from step 165 on, hold pushes in degrees."""
    imitate(tape, unit=lambda step: 57.3 if step >= 165 else 1.0)
