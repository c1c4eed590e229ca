"""Models of the third set: masked words, half precision, a replay buffer with a target network, cloned behaviour."""

from typing import Any

import torch

from benchmarks.zoo.real.change import Change, grad_norm
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn


def masked_words(run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, lr: float = 4e-3) -> None:
    """Fills masked words of sentences that follow a rule and have different lengths."""
    torch.manual_seed(seed)
    embed, place = nn.Embedding(22, 32), nn.Parameter(0.1 * torch.randn(12, 32))
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    out = nn.Linear(32, 20)
    model = nn.ModuleList([embed, layer, out, nn.ParameterList([place])])
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    state: dict[str, Any] = {"padding": False, "leak": False, "inverted": False, "parts": 2.0}
    for step in range(steps):
        if at is not None:
            at(state, step)
        optimizer.zero_grad()
        total, right, count = 0.0, 0.0, 0.0
        for _ in range(2):
            start, stride = torch.randint(0, 20, (24, 1)), torch.randint(1, 4, (24, 1))
            words = (start + stride * torch.arange(12)) % 20
            lengths = torch.randint(4, 13, (24, 1))
            padded = torch.arange(12) >= lengths
            hidden = (torch.rand(24, 12) < 0.25) & ~padded
            hidden[:, 0] |= ~hidden.any(1)
            shown = torch.where(hidden & (not state["leak"]), 20, words).masked_fill(padded, 21)
            hides = ~padded if state["inverted"] else padded
            logits = out(layer(embed(shown) + place, src_key_padding_mask=hides & ~hides.all(1, keepdim=True)))
            wanted = words.masked_fill(padded, 0)
            judged = hidden | padded if state["padding"] else hidden
            loss = F.cross_entropy(logits[judged], wanted[judged]) / state["parts"]
            loss.backward()
            total += loss.item()
            right += (logits[hidden].argmax(1) == wanted[hidden]).float().sum().item()
            count += hidden.sum().item()
        norm = grad_norm(model)
        optimizer.step()
        run.log(
            {"mlm_loss": total, "mlm_accuracy": right / count, "grad_norm": norm, "lr": lr, "tokens": 24.0 * 12 * 2},
            step=step,
        )


def half_precision(run: Tape, steps: int = 360, at: Change | None = None, seed: int = 0, lr: float = 0.05) -> None:
    """A regression in float16 with a loss scale: a step with an overflow is skipped."""
    torch.manual_seed(seed)
    slope = torch.randn(24, 3)
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scale, good, skipped = 2.0**17, 0, 0
    state: dict[str, Any] = {"gain": 1.0, "every": 60}
    for step in range(steps):
        if at is not None:
            at(state, step)
        inputs = torch.randn(64, 24)
        targets = (inputs @ slope).tanh() + 0.1 * torch.randn(64, 3)
        loss = F.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        (loss * scale).backward()
        for each in model.parameters():
            assert each.grad is not None
            each.grad = (state["gain"] * each.grad).half().float() / scale
        norm = grad_norm(model)
        if torch.isfinite(torch.tensor(norm)):
            optimizer.step()
            good += 1
            scale *= 2 if good % state["every"] == 0 else 1
        else:
            skipped, scale, good = skipped + 1, scale / 2, 0
        values = {"loss": loss.item(), "amp/loss_scale": scale, "amp/skipped_steps": float(skipped), "lr": lr}
        run.log(values if norm == float("inf") or norm != norm else values | {"grad_norm": norm}, step=step)


class Corridor:
    """Sixty-four walkers in a corridor of twelve places; the right end pays, each step costs a little."""

    def __init__(self) -> None:
        self.place = torch.randint(0, 12, (64,))
        self.returns: list[float] = [0.0]
        self.gained = torch.zeros(64)

    def seen(self) -> torch.Tensor:
        """What the walkers see."""
        return F.one_hot(self.place, 12).float()

    def move(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rewards and ends of a move; walkers at the end begin again."""
        slip = torch.rand(64) < 0.1
        self.place = (self.place + torch.where(slip, 1 - action, action) * 2 - 1).clamp(0, 11)
        done = (self.place == 11) | (torch.rand(64) < 0.04)
        reward = torch.where(self.place == 11, 1.0, -0.02)
        self.gained += reward
        self.returns = [*self.returns, *self.gained[done].tolist()][-100:]
        self.gained[done] = 0.0
        self.place[done] = torch.randint(0, 6, (int(done.sum()),))
        return reward, done


def replay(run: Tape, steps: int = 500, at: Change | None = None, seed: int = 0, lr: float = 2e-3) -> None:
    """DQN: a replay buffer, and a target network that is synchronised every 20 updates."""
    torch.manual_seed(seed)
    world = Corridor()
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
    target = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    state: dict[str, Any] = {"sync": 20, "stuck": False, "sign": 1.0, "floor": 0.05}
    kept: list[tuple[torch.Tensor, ...]] = []
    same: tuple[torch.Tensor, ...] | None = None
    for step in range(steps):
        if at is not None:
            at(state, step)
        explores = max(1 - step / 200, state["floor"])
        seen = world.seen()
        with torch.no_grad():
            action = torch.where(torch.rand(64) < explores, torch.randint(0, 2, (64,)), net(seen).argmax(1))
        reward, done = world.move(action)
        kept = [*kept, (seen, action, state["sign"] * reward, world.seen(), done.float())][-80:]
        chosen = [kept[int(at_)] for at_ in torch.randint(0, len(kept), (4,))]
        batch = tuple(torch.cat(each)[::4] for each in zip(*chosen, strict=True))
        if state["stuck"]:
            batch = same = same or batch
        before, did, gained, after, over = batch
        with torch.no_grad():
            wanted = gained + 0.95 * (1 - over) * target(after).max(1).values
        value = net(before).gather(1, did[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if state["sync"] and step % state["sync"] == 0:
            target.load_state_dict(net.state_dict())
        run.log(
            {
                "rollout/ep_rew_mean": sum(world.returns) / len(world.returns),
                "rollout/exploration_rate": explores,
                "train/loss": loss.item(),
                "train/q_mean": value.mean().item(),
                "train/learning_rate": lr,
            },
            step=step,
        )


def cloning(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0, lr: float = 4e-3) -> None:
    """Offline: actions of a mixed crowd, weighted by their advantage; the reward is that of trials every step."""
    torch.manual_seed(seed)
    best = torch.randint(0, 4, (30,))
    policy = nn.Sequential(nn.Embedding(30, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    state: dict[str, Any] = {"temperature": 0.5, "shuffled": False}
    for step in range(steps):
        if at is not None:
            at(state, step)
        place = torch.randint(0, 30, (96,))
        action = torch.where(torch.rand(96) < 0.45, best[place], torch.randint(0, 4, (96,)))
        advantage = (action == best[place]).float() - 0.5 + 0.2 * torch.randn(96)
        if state["shuffled"]:
            action = action[torch.randperm(96)]
        weight = (advantage / state["temperature"]).exp().clamp(max=20.0)
        logs = policy(place).log_softmax(1)
        loss = -(weight * logs.gather(1, action[:, None]).squeeze(1)).mean() / weight.mean()
        optimizer.zero_grad()
        loss.backward()
        norm = grad_norm(policy)
        optimizer.step()
        with torch.no_grad():
            tried = torch.randint(0, 30, (128,))
            chances = policy(tried).softmax(1)
            reward = (torch.multinomial(chances, 1).squeeze(1) == best[tried]).float().mean().item()
            entropy = -(chances * chances.log()).sum(1).mean().item()
        run.log(
            {"bc/loss": loss.item(), "bc/grad_norm": norm, "eval/return": reward, "policy/entropy": entropy, "lr": lr},
            step=step,
        )
