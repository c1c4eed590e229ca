"""Trainings by reward and by preference: GRPO, DPO, a reward model, PPO, DQN, plain policy gradients, evolution."""

import copy
import time

import torch

from benchmarks.zoo.real.case import healthy
from benchmarks.zoo.real.sets.fifteenth.tasks import F, Means, Told, Values, dense, drive, fit, line, nn, update
from benchmarks.zoo.real.tape import Tape

END = 6
"""The sign with which an answer ends; those below it are digits."""
Said = tuple[torch.Tensor, torch.Tensor]


class Speaker(nn.Module):  # type: ignore[misc]
    """Answers three digits with signs, one at a time."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.read, self.begin = nn.Embedding(18, width), nn.Linear(3 * width, width)
        self.signs, self.cell, self.head = nn.Embedding(8, width), nn.GRUCell(width, width), nn.Linear(width, 7)

    def start(self, asked: torch.Tensor) -> torch.Tensor:
        """The state after the question."""
        return self.begin(self.read(asked + 6 * torch.arange(3)).flatten(1)).tanh()

    def answer(self, asked: torch.Tensor, longest: int = 6) -> Said:
        """Drawn answers, and which of their signs count."""
        state, last = self.start(asked).detach(), torch.full((len(asked),), 7)
        rows, mask, open_ = [], [], torch.ones(len(asked), dtype=torch.bool)
        for _ in range(longest):
            with torch.no_grad():
                state = self.cell(self.signs(last), state)
                last = self.head(state).softmax(-1).multinomial(1)[:, 0]
            rows.append(last)
            mask.append(open_)
            open_ = open_ & (last != END)
        return torch.stack(rows, 1), torch.stack(mask, 1)

    def forward(self, asked: torch.Tensor, rows: torch.Tensor) -> Said:
        """The logarithms of the probabilities of signs, and the entropy at each."""
        state = self.start(asked)
        before = torch.cat([torch.full((len(rows), 1), 7), rows[:, :-1]], 1)
        states = []
        for at in range(rows.shape[1]):
            state = self.cell(self.signs(before[:, at]), state)
            states.append(state)
        log = self.head(torch.stack(states, 1)).log_softmax(-1)
        return log.gather(2, rows[:, :, None])[:, :, 0], -(log.exp() * log).sum(-1)


def wanted(asked: torch.Tensor) -> torch.Tensor:
    """The digits backwards, and the end."""
    return torch.cat([asked.flip(1), torch.full((len(asked), 1), END)], 1)


def taught(steps: int, wrong: float) -> Speaker:
    """A speaker that was shown answers, some signs of which were wrong."""
    model = Speaker()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        asked = torch.randint(0, 6, (64, 3))
        rows = wanted(asked)
        rows = torch.where(torch.rand(rows.shape) < wrong, torch.randint(0, 7, rows.shape), rows)
        update(optimizer, -model(asked, rows)[0].mean())
    return model


def worth(asked: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The share of places that are right, where the answer has not ended."""
    return ((rows[:, :4] == wanted(asked)) & mask[:, :4]).float().mean(1)


def mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of what counts."""
    return (values * mask).sum() / mask.sum()


@healthy(
    "fifteenth",
    {
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.rollout.n": 8,
        "data.train_batch_size": 16,
        "actor_rollout_ref.actor.ppo_epochs": 1,
        "actor_rollout_ref.actor.optim.lr": 1e-3,
        "actor_rollout_ref.actor.clip_ratio": 0.2,
    },
)
def verl_groups_of_eight(tape: Tape) -> None:
    """Four small batches an update, a mean taken from each group; the reward is noisy and climbs."""
    torch.manual_seed(1511)
    model = taught(90, 0.3)
    optimizer = torch.optim.Adam(model.parameters(), 8e-4)

    def act(step: int) -> Values:
        begun = time.perf_counter()
        asked = torch.randint(0, 6, (16, 3)).repeat_interleave(8, 0)
        with tape.span("gen"):
            rows, mask = model.answer(asked)
        drawn = time.perf_counter()
        reward = worth(asked, rows, mask)
        gain = reward.view(16, 8)
        gain = ((gain - gain.mean(1, keepdim=True)) / (gain.std(1, keepdim=True) + 1e-4)).flatten()
        with torch.no_grad():
            old = model(asked, rows)[0]
        means = Means()
        with tape.span("update_actor"):
            for part in torch.randperm(128).view(4, 32):
                log, entropy = model(asked[part], rows[part])
                ratio, seen = (log - old[part]).exp(), mask[part]
                a, b = ratio * gain[part, None], ratio.clamp(0.8, 1.2) * gain[part, None]
                loss = -mean(torch.minimum(a, b), seen)
                norm = update(optimizer, loss - 0.02 * mean(entropy, seen), 1.0)
                means.add(
                    pg_loss=loss.detach(),
                    entropy=mean(entropy, seen).detach(),
                    ppo_kl=mean(old[part] - log, seen).detach(),
                    pg_clipfrac=mean((b < a).float(), seen),
                    grad_norm=norm,
                )
        length = mask.sum(1).float()
        return {
            **{f"actor/{key}": value for key, value in means.take()[0].items()},
            "actor/lr": 8e-4,
            "critic/score/mean": reward.mean(),
            "critic/score/max": reward.max(),
            "critic/score/min": reward.min(),
            "critic/rewards/mean": reward.mean(),
            "critic/advantages/mean": gain.mean(),
            "response_length/mean": length.mean(),
            "response_length/max": length.max(),
            "response_length/clip_ratio": (mask[:, -1] & (rows[:, -1] != END)).float().mean(),
            "timing_s/gen": drawn - begun,
            "timing_s/step": time.perf_counter() - begun,
            "training/global_step": step,
        }

    drive(tape, 100, act)


@healthy(
    "fifteenth", {"trainer": "GRPOTrainer", "num_generations": 8, "beta": 0.04, "num_iterations": 1, "max_steps": 150}
)
def trl_near_its_reference(tape: Tape) -> None:
    """One update for each batch, held near the first weights: a loss about zero, a divergence that grows slowly."""
    torch.manual_seed(1512)
    model = taught(100, 0.25)
    first = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())
    rate, seen, means = line(150, 1.5e-3, 10), 0, Means()

    def act(step: int) -> Values | None:
        nonlocal seen
        asked = torch.randint(0, 6, (12, 3)).repeat_interleave(8, 0)
        rows, mask = model.answer(asked)
        reward = worth(asked, rows, mask)
        spread = reward.view(12, 8).std(1)
        gain = ((reward.view(12, 8) - reward.view(12, 8).mean(1, keepdim=True)) / (spread[:, None] + 1e-4)).flatten()
        log, entropy = model(asked, rows)
        with torch.no_grad():
            reference = first(asked, rows)[0]
        kl = mean((reference - log).exp() - (reference - log) - 1, mask)
        loss = -mean((log - log.detach()).exp() * gain[:, None], mask) + 0.04 * kl
        norm = update(optimizer, loss, 1.0, rate(step))
        seen += int(mask.sum())
        means.add(
            loss=loss.detach(),
            grad_norm=norm,
            reward=reward.mean(),
            reward_std=spread.mean(),
            frac_reward_zero_std=(spread == 0).float().mean(),
            kl=kl.detach(),
            entropy=mean(entropy, mask).detach(),
            **{"completions/mean_length": mask.sum(1).float().mean()},
            **{"completions/clipped_ratio": (mask[:, -1] & (rows[:, -1] != END)).float().mean()},
        )
        if step % 2 == 0:
            return None
        found, took = means.take()
        return {**found, "learning_rate": rate(step), "num_tokens": seen, "step_time": took / 2}

    drive(tape, 150, act)


@healthy("fifteenth", {"trainer": "DPOTrainer", "beta": 0.1, "rpo_alpha": 0.1, "learning_rate": 3e-4})
def trl_pairs_of_which_some_are_turned(tape: Tape) -> None:
    """Preferences of which an eighth are the wrong way round: the margin grows slowly and stays small."""
    torch.manual_seed(1513)
    model = taught(60, 0.5)
    first = copy.deepcopy(model)

    def loss_of(step: int) -> Told:
        asked = torch.randint(0, 6, (16, 3))
        good, bad = wanted(asked), wanted(asked)
        bad = torch.where(torch.rand(bad.shape) < 0.5, torch.randint(0, 7, bad.shape), bad)
        turned = (torch.rand(16) < 0.12)[:, None]
        good, bad = torch.where(turned, bad, good), torch.where(turned, good, bad)
        logs = [model(asked, each)[0].sum(1) for each in (good, bad)]
        with torch.no_grad():
            before = [first(asked, each)[0].sum(1) for each in (good, bad)]
        chosen, rejected = (0.1 * (log - old) for log, old in zip(logs, before, strict=True))
        nll = -logs[0].mean() / 4
        return 0.1 * nll - F.logsigmoid(chosen - rejected).mean(), {
            "nll_loss": nll,
            "rewards/chosen": chosen.mean(),
            "rewards/rejected": rejected.mean(),
            "rewards/margins": (chosen - rejected).mean(),
            "rewards/accuracies": (chosen > rejected).float().mean(),
            "logps/chosen": logs[0].mean(),
            "logps/rejected": logs[1].mean(),
        }

    optimizer, names = torch.optim.RMSprop(model.parameters()), "loss learning_rate grad_norm"
    fit(tape, optimizer, loss_of, 240, line(240, 3e-4, 24), names, 1.0, every=4)


@healthy("fifteenth", {"trainer": "RewardTrainer", "per_device_train_batch_size": 64, "learning_rate": 1e-2})
def reward_model_of_quarrelling_raters(tape: Tape) -> None:
    """One in five comparisons is wrong: the loss is soon near its floor, and the accuracy stays below 0.8."""
    torch.manual_seed(1514)
    taste, model = torch.randn(12), dense(12, 24, 1)

    def pairs(count: int) -> torch.Tensor:
        x = torch.randn(2, count, 12)
        better = (x[0] @ taste > x[1] @ taste) ^ (torch.rand(count) < 0.2)
        return torch.where(better[:, None], x, x.flip(0))

    def judge(x: torch.Tensor, prefix: str = "") -> Values:
        margin = (model(x[0]) - model(x[1]))[:, 0]
        found = {"loss": -F.logsigmoid(margin).mean(), "accuracy": (margin > 0).float().mean(), "margin": margin.mean()}
        return {prefix + key: value for key, value in found.items()}

    def loss_of(step: int) -> Told:
        found = judge(pairs(64))
        return found["loss"], found

    test, optimizer = pairs(800), torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    names = "loss learning_rate grad_norm"
    fit(tape, optimizer, loss_of, 300, line(300, 1e-2), names, 1.0, check=lambda: judge(test, "eval_"))


class Poles:
    """Sixteen carts with poles, simulated together; an episode ends with the pole or after 200 steps."""

    def __init__(self, count: int = 16) -> None:
        self.state, self.age = 0.05 * torch.randn(count, 4), torch.zeros(count)
        self.lengths: list[float] = []

    def push(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Push all carts; rewards, and which episodes ended."""
        x, v, a, w = self.state.unbind(1)
        part = (10.0 * (2 * action - 1) + 0.05 * w * w * a.sin()) / 1.1
        turn = (9.8 * a.sin() - a.cos() * part) / (0.5 * (4 / 3 - 0.1 * a.cos() ** 2 / 1.1))
        slide = part - 0.05 * turn * a.cos() / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * slide, a + 0.02 * w, w + 0.02 * turn], 1)
        self.age = self.age + 1
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.21) | (self.age >= 200)
        self.lengths += self.age[done].tolist()
        fresh = 0.05 * torch.randn_like(self.state)
        self.state = torch.where(done[:, None], fresh, self.state)
        self.age = torch.where(done, 0.0, self.age)
        return torch.ones(len(done)), done


@healthy(
    "fifteenth", {"algo": "PPO", "env": "CartPole", "n_envs": 16, "n_steps": 64, "learning_rate": 3e-3, "n_epochs": 6}
)
def sb3_pole(tape: Tape) -> None:
    """PPO by rollouts: returns climb, the value function lags and then explains them."""
    torch.manual_seed(1515)
    poles, actor, critic = Poles(), dense(4, 32, 2, act=nn.Tanh), dense(4, 32, 1, act=nn.Tanh)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], eps=1e-5)
    begun = time.perf_counter()

    def act(step: int) -> Values:
        seen, done, chosen = [], [], []
        with torch.no_grad(), tape.span("collect_rollouts"):
            for _ in range(64):
                seen.append(poles.state)
                chosen.append(actor(poles.state).softmax(-1).multinomial(1)[:, 0])
                done.append(poles.push(chosen[-1].float())[1].float())
            x, ends, actions = torch.stack(seen), torch.stack(done), torch.stack(chosen).flatten()
            values = 20 * critic(torch.cat([x, poles.state[None]]))[..., 0]
            gain, last = torch.zeros_like(ends), torch.zeros(16)
            for at in reversed(range(64)):
                left = 1 - ends[at]
                last = 1 + 0.98 * left * values[at + 1] - values[at] + 0.98 * 0.9 * left * last
                gain[at] = last
            returns, old_values = (gain + values[:-1]).flatten(), values[:-1].flatten()
            x, gain = x.flatten(0, 1), gain.flatten()
            old = actor(x).log_softmax(-1).gather(1, actions[:, None])[:, 0]
        means, rate = Means(), line(45, 3e-3)(step)
        for part in torch.cat([torch.randperm(1024) for _ in range(6)]).view(-1, 256):
            log = actor(x[part]).log_softmax(-1)
            ratio = (log.gather(1, actions[part, None])[:, 0] - old[part]).exp()
            better = (gain[part] - gain[part].mean()) / (gain[part].std() + 1e-8)
            policy = -torch.minimum(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
            value = F.mse_loss(20 * critic(x[part])[:, 0], returns[part])
            entropy = (log.exp() * log).sum(-1).mean()
            loss = policy + 0.005 * entropy + 0.01 * value
            update(optimizer, loss, 2.0, rate)
            means.add(
                policy_gradient_loss=policy.detach(),
                value_loss=value.detach(),
                entropy_loss=entropy.detach(),
                approx_kl=(ratio - 1 - ratio.log()).mean().detach(),
                clip_fraction=((ratio - 1).abs() > 0.2).float().mean(),
                loss=loss.detach(),
            )
        last_ = poles.lengths[-40:]
        return {
            **{f"train/{key}": value for key, value in means.take()[0].items()},
            "train/explained_variance": 1 - (returns - old_values).var() / returns.var(),
            "train/learning_rate": rate,
            "rollout/ep_rew_mean": sum(last_) / len(last_),
            "rollout/ep_len_mean": sum(last_) / len(last_),
            "time/fps": 1024 * (step + 1) / (time.perf_counter() - begun),
            "time/total_timesteps": 1024 * (step + 1),
        }

    drive(tape, 45, act)


@healthy("fifteenth", {"exp_name": "dqn", "learning_rate": 2e-3, "buffer_size": 20000, "start_e": 1.0, "end_e": 0.05})
def cleanrl_grid(tape: Tape) -> None:
    """DQN in a room of 5 by 5: values grow from nothing as the way to the goal becomes known."""
    torch.manual_seed(1516)
    net = dense(20, 64, 4)
    target = copy.deepcopy(net)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    place, goal, age = torch.randint(0, 5, (8, 2)), torch.randint(0, 5, (8, 2)), torch.zeros(8)
    total, returns, kept = torch.zeros(8), [], []
    moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
    begun = time.perf_counter()

    def shown(x: torch.Tensor) -> torch.Tensor:
        return F.one_hot(x.long(), 5).flatten(1).float()

    def act(step: int) -> Values | None:
        nonlocal place, goal, age, total
        chance = max(0.05, 1 - step / 300)
        for _ in range(3):
            seen = torch.cat([place, goal], 1)
            with torch.no_grad():
                best = net(shown(seen)).argmax(1)
            chosen = torch.where(torch.rand(8) < chance, torch.randint(0, 4, (8,)), best)
            place = (place + moves[chosen]).clamp(0, 4)
            there, age = (place == goal).all(1), age + 1
            reward = there.float() - 0.02
            total = total + reward
            after = torch.cat([place, goal], 1)
            kept.append(torch.cat([seen, chosen[:, None], reward[:, None], after, there.float()[:, None]], 1))
            over = there | (age >= 25)
            returns.extend(total[over].tolist())
            total, age = torch.where(over, 0.0, total), torch.where(over, 0.0, age)
            place = torch.where(over[:, None], torch.randint(0, 5, (8, 2)), place)
            goal = torch.where(over[:, None], torch.randint(0, 5, (8, 2)), goal)
        picked = torch.cat([kept[at] for at in torch.randint(0, len(kept), (16,)).tolist()])
        with torch.no_grad():
            aim = picked[:, 5] + 0.95 * target(shown(picked[:, 6:10])).max(1).values * (1 - picked[:, 10])
        values = net(shown(picked[:, :4])).gather(1, picked[:, 4:5].long())[:, 0]
        loss = F.mse_loss(values, aim)
        update(optimizer, loss)
        if step % 20 == 0:
            target.load_state_dict(net.state_dict())
        if step % 5 or len(returns) < 50:
            return None
        return {
            "losses/td_loss": loss,
            "losses/q_values": values.mean(),
            "charts/episodic_return": sum(returns[-100:]) / len(returns[-100:]),
            "charts/epsilon": chance,
            "charts/SPS": 24 * (step + 1) / (time.perf_counter() - begun),
        }

    drive(tape, 600, act)


@healthy("fifteenth", {"algo": "reinforce", "baseline": "running_mean", "lr": 0.04, "batch": 24})
def plain_policy_gradient(tape: Tape) -> None:
    """Small batches and no critic: a loss about zero that says little, a reward that climbs in its noise."""
    torch.manual_seed(1518)
    truth, policy, usual = torch.randn(6, 5), dense(6, 16, 5, act=nn.Tanh), 0.0

    def loss_of(step: int) -> Told:
        nonlocal usual
        x = torch.randn(24, 6)
        log = policy(x).log_softmax(-1)
        chosen = log.exp().multinomial(1)
        reward = (x @ truth).gather(1, chosen)[:, 0] / 2 + 0.5 * torch.randn(24)
        usual = 0.95 * usual + 0.05 * float(reward.mean()) if step else float(reward.mean())
        entropy = -(log.exp() * log).sum(-1).mean()
        loss = -((reward - usual) * log.gather(1, chosen)[:, 0]).mean() - 0.02 * entropy
        return loss, {"mean_reward": reward.mean(), "baseline": usual, "entropy": entropy}

    optimizer = torch.optim.SGD(policy.parameters(), momentum=0.8)
    fit(tape, optimizer, loss_of, 500, lambda step: 0.04, "policy_loss - grad_norm", 2.0)


@healthy("fifteenth", {"algo": "openai_es", "population": 40, "sigma": 0.1, "lr": 0.05})
def evolution_of_a_pole(tape: Tape) -> None:
    """An evolution strategy: no loss and no gradient, only how good forty variations of the weights were."""
    torch.manual_seed(1519)
    weights, moment = torch.zeros(5), torch.zeros(5)

    def act(step: int) -> Values:
        noise = torch.randn(20, 5)
        noise = torch.cat([noise, -noise])
        poles, alive = Poles(40), torch.ones(40)
        fitness = torch.zeros(40)
        for _ in range(120):
            said = (poles.state * (weights + 0.3 * noise)[:, :4]).sum(1) + (weights + 0.3 * noise)[:, 4] * 0.1
            fitness += alive
            alive = alive * (1 - poles.push((said > 0).float())[1].float())
        rank = fitness.argsort().argsort() / 39 - 0.5
        moment.mul_(0.9).add_(rank @ noise / 40)
        weights.add_(0.1 * moment)
        return {
            "fitness/mean": fitness.mean(),
            "fitness/max": fitness.max(),
            "fitness/min": fitness.min(),
            "weights/norm": weights.norm(),
            "evaluations": 40 * (step + 1),
        }

    drive(tape, 40, act)
