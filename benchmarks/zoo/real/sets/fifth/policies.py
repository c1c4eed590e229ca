"""Of the fifth set: preferences and policies, with the metric names of the frameworks that train them."""

from collections import deque

import numpy as np
import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.fifth.tasks import Tensor, dense, descend, gradient_norm, seeded, ticks
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
TOKENS, ANSWER = 12, 6


def preferences(
    tape: Tape, *, rate: float = 1e-3, count: int = 3000, wrong: float = 0.15, swap: int = 10**9, beta: float = 0.1
) -> None:
    """Direct preference optimisation of a policy that writes six tokens; the better of two answers is chosen."""
    taste = torch.randn(8, TOKENS)
    policy, reference = dense(8, 64, TOKENS), dense(8, 64, TOKENS)
    reference.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=rate)
    prompts = torch.randn(count, 8)
    answers = torch.randint(TOKENS, (count, 2, ANSWER))

    def chances(model: nn.Module, rows: Tensor) -> Tensor:
        return model(prompts[rows]).log_softmax(1)[:, None].expand(-1, 2, -1).gather(2, answers[rows]).sum(2)

    worth = (prompts @ taste)[:, None].expand(-1, 2, -1).gather(2, answers).mean(2)
    better = (worth[:, 1] > worth[:, 0]) ^ (torch.rand(count) < wrong)
    for step in ticks(tape, 600):
        rows = torch.randint(count - 100, (16,)) if step % 50 else torch.arange(count - 100, count)
        order = better[rows, None].long() ^ (1 if step >= swap and step % 50 else 0)
        pair = torch.cat((order, 1 - order), 1)
        ours = chances(policy, rows).gather(1, pair)
        with torch.no_grad():
            theirs = chances(reference, rows).gather(1, pair)
        rewards = beta * (ours - theirs)
        margin = rewards[:, 0] - rewards[:, 1]
        loss = -F.logsigmoid(margin).mean()
        right = float((margin > 0).float().mean())
        if step % 50 == 0:
            tape.log({"eval_loss": loss.item(), "eval_rewards/accuracies": right})
            continue
        norm = descend(loss, optimizer, policy, 1.0)
        values = {"loss": loss.item(), "grad_norm": norm, "rewards/accuracies": right}
        for at, name in enumerate(("chosen", "rejected")):
            values |= {f"rewards/{name}": rewards[:, at].mean().item(), f"logps/{name}": ours[:, at].mean().item()}
        tape.log({**values, "rewards/margins": margin.mean().item()})


@fault("fifth", "margin_collapse accuracy_drop level_shift reward_collapse spike divergence", step=300, window=40)
def chosen_and_rejected_swapped(tape: Tape) -> None:
    """From step 300 on a second data set is used, in which the first answer is the rejected one."""
    seeded(561)
    preferences(tape, swap=300)


@fault("fifth", "chosen_falls margin_explosion overfit generalization_gap overtraining divergence")
def preferences_too_fast(tape: Tape) -> None:
    """A rate fit for pre-training: both answers become impossible, the margin grows without end."""
    seeded(562)
    preferences(tape, rate=4e-2, count=700)


@healthy("fifth", config={"beta": 0.1, "trainer": "dpo"})
def healthy_preferences(tape: Tape) -> None:
    """A fifth of the preferences are wrong."""
    seeded(563)
    preferences(tape, rate=6e-4, wrong=0.2)


def groups(
    tape: Tape, *, rate: float = 4e-3, unparsed: int = 10**9, entropy: float = 0.003, noise: float = 0.05
) -> None:
    """GRPO: eight answers to each of six prompts, a reward for each right token, and a KL to the start."""
    wanted = torch.randint(TOKENS, (24, ANSWER))
    policy, reference = dense(24, 96, ANSWER * TOKENS), dense(24, 96, ANSWER * TOKENS)
    reference.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=rate)
    for step in ticks(tape, 500):
        prompts = torch.randint(24, (6,))
        seen = F.one_hot(prompts, 24).float()
        logits = policy(seen).view(6, 1, ANSWER, TOKENS).log_softmax(-1)
        tokens = torch.distributions.Categorical(logits=logits.detach().expand(-1, 8, -1, -1)).sample()
        right = (tokens == wanted[prompts][:, None]).float().mean(2)
        reward = (right + noise * torch.randn_like(right)).clamp(0, 1) if step < unparsed else torch.zeros_like(right)
        spread = reward.std(1, keepdim=True)
        advantage = (reward - reward.mean(1, keepdim=True)) / (spread + 1e-4)
        ours = logits.expand(-1, 8, -1, -1).gather(3, tokens[..., None]).squeeze(3)
        start = reference(seen).view(6, 1, ANSWER, TOKENS).log_softmax(-1).detach()
        kl = (logits.exp() * (logits - start)).sum(-1).mean()
        disorder = -(logits.exp() * logits).sum(-1).mean()
        loss = -(advantage[..., None] * ours).mean() + 0.01 * kl - entropy * disorder
        norm = descend(loss, optimizer, policy, 1.0)
        values = {"loss": loss.item(), "grad_norm": norm, "kl": kl.item(), "entropy": disorder.item()}
        values |= {"reward": reward.mean().item(), "reward_std": spread.mean().item()}
        tape.log({**values, "frac_reward_zero_std": float((spread < 1e-6).float().mean())})


@fault("fifth", "zero_advantage reward_collapse level_shift constant", step=240, window=20)
def answers_not_parsed(tape: Tape) -> None:
    """From step 240 on the parser of the reward finds no answer, since its template was edited: all rewards are 0."""
    seeded(564)
    groups(tape, unparsed=240)


@fault("fifth", "entropy_collapse plateau zero_advantage not_learning vanishing_gradients kl_blowup reward_collapse")
def policy_too_fast(tape: Tape) -> None:
    """75 times the rate and no entropy bonus: the policy becomes certain of wrong answers within some steps."""
    seeded(565)
    groups(tape, rate=0.3, entropy=0.0, noise=0.0)


@healthy("fifth", config={"num_generations": 8, "trainer": "grpo"})
def healthy_groups_noisy(tape: Tape) -> None:
    """A noisy judge gives the rewards."""
    seeded(566)
    groups(tape, noise=0.2)


class Masses:
    """Sixteen masses that are pushed towards the middle; an episode has forty steps."""

    def __init__(self, random: np.random.Generator, count: int = 16, recent: int = 60) -> None:
        self.random, self.count = random, count
        self.state = random.normal(size=(count, 2))
        self.age = random.integers(40, size=count)
        self.sum = np.full(count, np.nan)  # what began before is no whole episode
        self.returns: deque[float] = deque(maxlen=recent)

    def act(self, push: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Push; return rewards and which episodes ended, from whose new start the state is."""
        place, speed = self.state.T
        speed = 0.95 * speed + 0.15 * np.clip(push, -2, 2) + 0.02 * self.random.normal(size=self.count)
        place = np.clip(place + 0.3 * speed, -4, 4)
        reward = -0.2 * np.abs(place) - 0.01 * np.clip(push, -2, 2) ** 2
        self.sum, self.age = self.sum + reward, self.age + 1
        ended = self.age >= 40
        self.returns.extend(self.sum[ended & ~np.isnan(self.sum)])
        self.state = np.where(ended[:, None], self.random.normal(size=(self.count, 2)), np.stack((place, speed), 1))
        self.sum, self.age = np.where(ended, 0.0, self.sum), np.where(ended, 0, self.age)
        return reward, ended


def proximal(
    tape: Tape, seed: int, *, bonus: float = 0.0, flipped: int = 10**9, critic: bool = True, updates: int = 160
) -> None:
    """PPO with a Gaussian policy on the masses, with the names of Stable-Baselines3."""
    world = Masses(seeded(seed))
    actor, value, spread = dense(2, 32, 1), dense(2, 32, 1), nn.Parameter(torch.zeros(1))
    trained = nn.ModuleList((actor, value) if critic else (actor,))
    optimizer = torch.optim.Adam([*trained.parameters(), spread], lr=3e-3)

    def seen(update: int) -> Tensor:
        state = torch.tensor(world.state, dtype=torch.float32)
        return torch.stack((state[:, 1], 3 * state[:, 0] + 2), 1) if update >= flipped else state

    for update in ticks(tape, updates):
        with tape.span("rollout"), torch.no_grad():
            rows = []
            for _ in range(24):
                state = seen(update)
                push = actor(state) + spread.exp() * torch.randn(16, 1)
                reward, ended = world.act(push[:, 0].numpy())
                rows.append((state, push, torch.tensor(reward, dtype=torch.float32), torch.tensor(~ended).float()))
            states, pushes, rewards, alive = (torch.stack(part) for part in zip(*rows, strict=True))
            values, after = value(states)[..., 0], value(seen(update))[:, 0]
            advantage, running = torch.zeros(24, 16), torch.zeros(16)
            for at in reversed(range(24)):
                running = rewards[at] + 0.97 * alive[at] * after - values[at] + 0.97 * 0.95 * alive[at] * running
                advantage[at], after = running, values[at]
            targets = advantage + values
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            before = torch.distributions.Normal(actor(states), spread.exp()).log_prob(pushes)[..., 0]
        for _ in range(4):
            chances = torch.distributions.Normal(actor(states), spread.exp())
            ratio = (chances.log_prob(pushes)[..., 0] - before).exp()
            policy = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            error = F.mse_loss(value(states)[..., 0], targets)
            entropy = chances.entropy().mean()
            optimizer.zero_grad()
            loss = policy + 0.5 * error - bonus * entropy
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_([*trained.parameters(), spread], 0.5)
            optimizer.step()
        logged = {
            "train/loss": loss.item(),
            "train/policy_gradient_loss": policy.item(),
            "train/value_loss": error.item(),
        }
        logged |= {"train/entropy_loss": -entropy.item(), "train/std": spread.exp().item()}
        logged["train/approx_kl"] = (ratio - 1 - ratio.log()).mean().item()
        logged["train/clip_fraction"] = float(((ratio - 1).abs() > 0.2).float().mean())
        logged["train/explained_variance"] = (1 - (targets - values).var() / targets.var()).item()
        tape.log(logged | ({"rollout/ep_rew_mean": float(np.mean(world.returns))} if world.returns else {}))


@fault("fifth", "entropy_explosion reward_collapse divergence plateau not_learning level_shift")
def bonus_for_chaos(tape: Tape) -> None:
    """The entropy bonus is 0.5 instead of 0.005: the deviation of the actions grows without end."""
    proximal(tape, 567, bonus=0.5)


@fault("fifth", "reward_collapse level_shift bad_resume value_function spike divergence kl_blowup", step=90, window=15)
def observations_reordered(tape: Tape) -> None:
    """From update 90 on the environment's new version swaps its observations and scales one of them."""
    proximal(tape, 568, flipped=90)


@fault("fifth", "value_function weights_frozen not_learning constant plateau")
def critic_not_trained(tape: Tape) -> None:
    """The parameters of the value network are not in the optimizer."""
    proximal(tape, 569, critic=False)


@healthy("fifth", config={"n_envs": 16, "n_steps": 24})
def healthy_proximal(tape: Tape) -> None:
    """PPO that learns."""
    proximal(tape, 570, bonus=0.002, updates=200)


def q_learning(tape: Tape, seed: int, *, gamma: float = 0.95, own_target: bool = False, restart: int = 10**9) -> None:
    """Deep Q-learning with three pushes; logs every 10 steps, and returns when episodes end."""
    random = seeded(seed)
    world = Masses(random, 4, 12)
    online, target = dense(2, 48, 3), dense(2, 48, 3)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
    memory: deque[tuple[np.ndarray, int, float, np.ndarray, bool]] = deque(maxlen=5000)
    born = 0
    for step in ticks(tape, 1500):
        if step == restart:
            memory.clear()
            born = step
        chance = max(0.05, 1 - (step - born) / 600)
        state = world.state.astype(np.float32)
        with torch.no_grad():
            pushes = online(torch.tensor(state)).argmax(1).numpy()
        pushes = np.where(random.random(4) < chance, random.integers(3, size=4), pushes)
        rewards, ended = world.act((pushes - 1) * 1.5)
        memory.extend(zip(state, pushes, rewards, world.state.astype(np.float32), ended, strict=True))
        if ended.any() and world.returns:
            tape.log({"rollout/ep_rew_mean": float(np.mean(world.returns)), "rollout/exploration_rate": chance})
        if len(memory) < 200:
            continue
        drawn = [memory[at] for at in random.integers(len(memory), size=32)]
        before, acts, gains, after, over = (torch.tensor(np.array(part)) for part in zip(*drawn, strict=True))
        with torch.no_grad():
            best = (online if own_target else target)(after).max(1).values
        wanted = gains.float() + gamma * best * (~over).float()
        chosen = online(before).gather(1, acts[:, None].long())[:, 0]
        loss = F.mse_loss(chosen, wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = gradient_norm(online)
        optimizer.step()
        if step % 100 == 0:
            target.load_state_dict(online.state_dict())
        if step % 10 == 0:
            tape.log({"train/loss": loss.item(), "train/q_mean": chosen.mean().item(), "train/grad_norm": norm})


@fault("fifth", "divergence absurd_loss value_function exploding_gradients norm_growth level_shift")
def discount_above_one(tape: Tape) -> None:
    """A discount of 1.1 from a sweep, and targets from the network itself: the values grow without end."""
    q_learning(tape, 571, gamma=1.1, own_target=True)


@fault("fifth", "reward_collapse level_shift bad_resume entropy_explosion", step=900, window=150)
def exploration_from_the_start(tape: Tape) -> None:
    """A restart at step 900 keeps the weights only: exploration starts at 1 again, with an empty memory."""
    q_learning(tape, 572, restart=900)


@healthy("fifth", config={"exploration_fraction": 0.4})
def healthy_q_learning(tape: Tape) -> None:
    """Deep Q-learning that learns, with values that sink to what the episodes cost."""
    q_learning(tape, 573)
