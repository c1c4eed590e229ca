"""A small PPO with the wandb and TensorBoard calls of single-file reinforcement-learning scripts, run as a program."""

import argparse
import random
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.distributions.categorical import Categorical
from torch.utils.tensorboard import SummaryWriter


def parse_args() -> argparse.Namespace:
    """The arguments such scripts have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--exp-name", default="ppo")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--track", type=lambda text: text == "True", default=True)
    parser.add_argument("--wandb-project-name", default="cleanRL")
    parser.add_argument("--wandb-entity", default=None)
    parser.add_argument("--capture-video", type=lambda text: text == "True", default=False)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--total-timesteps", type=int, default=512)
    parser.add_argument("--learning-rate", type=float, default=2.5e-4)
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--num-steps", type=int, default=32)
    return parser.parse_args()


class Agent(nn.Module):  # type: ignore[misc]
    """Policy and value of CartPole."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(
        self, observed: torch.Tensor, action: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Choose an action, or judge one."""
        chances = Categorical(logits=self.actor(observed))
        chosen = chances.sample() if action is None else action
        return chosen, chances.log_prob(chosen), chances.entropy(), self.critic(observed).squeeze(-1)


def main() -> None:
    """Train for a few updates."""
    args = parse_args()
    run_name = f"{args.env_id}__{args.exp_name}__{args.seed}__{int(time.time())}"
    if args.track:
        import stepscope.compat.wandb as wandb

        wandb.init(
            project=args.wandb_project_name,
            entity=args.wandb_entity,
            sync_tensorboard=True,
            config=vars(args),
            name=run_name,
            monitor_gym=True,
            save_code=True,
        )
    writer = SummaryWriter(f"runs/{run_name}")
    writer.add_text(
        "hyperparameters",
        "|param|value|\n|-|-|\n%s" % ("\n".join([f"|{key}|{value}|" for key, value in vars(args).items()])),  # noqa: UP031
    )
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make(args.env_id) for _ in range(args.num_envs)])
    agent = Agent()
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    train(args, envs, agent, optimizer, writer)
    envs.close()
    writer.close()


def train(
    args: argparse.Namespace,
    envs: "gym.vector.SyncVectorEnv",
    agent: Agent,
    optimizer: optim.Adam,
    writer: SummaryWriter,
) -> None:
    """Sample and learn in turns."""
    global_step, start_time = 0, time.time()
    returns = np.zeros(args.num_envs)
    observed = torch.Tensor(envs.reset(seed=args.seed)[0])
    updates = args.total_timesteps // (args.num_envs * args.num_steps)
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / updates) * args.learning_rate
        kept = []
        for _ in range(args.num_steps):
            global_step += args.num_envs
            with torch.no_grad():
                action, logprob, _, _ = agent(observed)
            following, reward, terminated, truncated, _ = envs.step(action.numpy())
            kept.append((observed, action, logprob, torch.Tensor(reward)))
            returns += reward
            for index in np.flatnonzero(np.logical_or(terminated, truncated)):
                writer.add_scalar("charts/episodic_return", returns[index], global_step)
                returns[index] = 0
            observed = torch.Tensor(following)
        seen, actions, logprobs, rewards = (torch.cat(each) for each in zip(*kept, strict=True))
        _, newlogprob, entropy, value = agent(seen, actions)
        logratio = newlogprob - logprobs
        advantage = rewards - value.detach()
        pg_loss = -(advantage * logratio.exp()).mean()
        v_loss = 0.5 * ((value - rewards) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("charts/learning_rate", optimizer.param_groups[0]["lr"], global_step)
        writer.add_scalar("losses/value_loss", v_loss.item(), global_step)
        writer.add_scalar("losses/policy_loss", pg_loss.item(), global_step)
        writer.add_scalar("losses/entropy", entropy.mean().item(), global_step)
        writer.add_scalar("losses/approx_kl", ((logratio.exp() - 1) - logratio).mean().item(), global_step)
        writer.add_scalar("charts/SPS", int(global_step / (time.time() - start_time)), global_step)


if __name__ == "__main__":
    main()
