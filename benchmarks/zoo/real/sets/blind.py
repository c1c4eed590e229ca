"""Trainings written before the detectors were read, of other models than the rest; nothing is tuned on them."""

import math
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.change import Change, add_healthy, from_step, grad_norm
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional


def vae(run: Tape, steps: int = 400, at: Change | None = None, seed: int = 0, lr: float = 2e-3) -> None:
    """A variational autoencoder with an ELBO in parts."""
    torch.manual_seed(seed)
    data = torch.sigmoid(torch.randn(3000, 3) @ torch.randn(3, 24) * 2)
    encoder, decoder = (
        torch.nn.Linear(24, 8),
        torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 24)),
    )
    both = torch.nn.ModuleList([encoder, decoder])
    optimizer = torch.optim.Adam(both.parameters(), lr=lr)
    state: dict[str, Any] = {"beta": 0.02, "gain": 1.0, "updates": True}
    for step in range(steps):
        if at is not None:
            at(state, step)
        batch = state["gain"] * data[torch.randint(0, 3000, (64,))]
        mean, spread = encoder(batch).chunk(2, 1)
        out = decoder(mean + torch.randn_like(mean) * (spread / 2).exp())
        recon = F.mse_loss(out, batch)
        kl = -0.5 * (1 + spread - mean**2 - spread.exp()).mean()
        loss = recon + state["beta"] * kl
        optimizer.zero_grad()
        loss.backward()
        if state["updates"]:
            optimizer.step()
        run.log({"elbo/loss": loss.item(), "elbo/recon_loss": recon.item(), "elbo/kl_loss": kl.item()}, step=step)


def diffusion(run: Tape, steps: int = 450, at: Change | None = None, seed: int = 0, lr: float = 2e-3) -> None:
    """Predicts the noise in points of two moons."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.Linear(64, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    state: dict[str, Any] = {"wrong_noise": False, "fixed": None, "reset": False, "zero": True}
    for step in range(steps):
        if at is not None:
            at(state, step)
        if state["reset"]:
            state["reset"] = False
            with torch.no_grad():
                model[2].weight.normal_(0, 2.0)
        with run.step(step):
            angle = 3.14159 * torch.rand(96)
            clean = torch.stack([angle.cos() + (torch.rand(96) > 0.5) * 1.0, angle.sin()], 1)
            share, noise = torch.rand(96, 1), torch.randn(96, 2)
            if state["fixed"] is True:
                state["fixed"] = (clean[:4].repeat(24, 1), share[:4].repeat(24, 1), noise[:4].repeat(24, 1))
            if state["fixed"] is not None:
                clean, share, noise = state["fixed"]
            mixed = (1 - share).sqrt() * clean + share.sqrt() * noise
            target = torch.randn_like(noise) if state["wrong_noise"] else noise
            loss = F.mse_loss(model(torch.cat([mixed, share], 1)), target)
            if state["zero"]:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"train_loss_step": loss.item(), "train/grad_norm": grad_norm(model), "lr-AdamW": lr})


def contrastive(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0, lr: float = 3e-3) -> None:
    """Two views of the same point must be near each other."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.ReLU(), torch.nn.Linear(48, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state: dict[str, Any] = {"mixed": False, "lr": lr, "temperature": 0.2}
    for step in range(steps):
        if at is not None:
            at(state, step)
        optimizer.param_groups[0]["lr"] = state["lr"]
        points = torch.randn(48, 16)
        first, second = (F.normalize(model(points + 0.7 * torch.randn_like(points)), dim=1) for _ in range(2))
        if state["mixed"]:
            second = second[torch.randperm(48)]
        logits = first @ second.T / state["temperature"]
        loss = F.cross_entropy(logits, torch.arange(48))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        top = (logits.argmax(1) == torch.arange(48)).float().mean().item()
        run.log({"infonce/loss": loss.item(), "infonce/top1": top, "lr": state["lr"]}, step=step)


def graph(run: Tape, steps: int = 300, at: Change | None = None, seed: int = 0, lr: float = 0.01) -> None:
    """Labels of the nodes of a graph, the whole graph in every step, with dropout."""
    torch.manual_seed(seed)
    labels = torch.randint(0, 5, (300,))
    edges = (torch.rand(300, 300) < torch.where(labels[:, None] == labels, 0.05, 0.01)).float()
    links = edges + edges.T + torch.eye(300)
    links = links / links.sum(1, keepdim=True)
    features = torch.randn(300, 12) + F.one_hot(labels, 12).float()
    first, second = torch.nn.Linear(12, 32), torch.nn.Linear(32, 5)
    both = torch.nn.ModuleList([first, second])
    optimizer = torch.optim.Adam(both.parameters(), lr=lr, weight_decay=5e-4)
    state: dict[str, Any] = {"decay": 0.0, "cut": False, "updates": True}
    known = torch.rand(300) < 0.6
    for step in range(steps):
        if at is not None:
            at(state, step)
        if state["decay"]:
            with torch.no_grad():
                for each in both.parameters():
                    each.mul_(1 - state["decay"])
        around = torch.eye(300) if state["cut"] else links
        hidden = F.dropout(torch.relu(around @ first(features)), 0.5)
        out = around @ second(hidden)
        loss = F.cross_entropy(out[known], labels[known])
        optimizer.zero_grad()
        loss.backward()
        if state["updates"]:
            optimizer.step()
        right = (out.argmax(1) == labels).float()
        run.log(
            {"loss": loss.item(), "train_acc": right[known].mean().item(), "val_acc": right[~known].mean().item()},
            step=step,
        )


def q_learning(run: Tape, steps: int = 500, at: Change | None = None, seed: int = 0) -> None:
    """A deep Q network on a chain of states."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    target = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    target.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    memory: list[tuple[int, int, float, int]] = []
    state: dict[str, Any] = {"reward": 1.0, "discount": 0.9, "explore": None, "break": False}
    place = 0
    for step in range(steps):
        if at is not None:
            at(state, step)
        if state["break"]:
            state["break"] = False
            with torch.no_grad():
                model[2].weight.mul_(-30)
        gained = 0.0
        explore = state["explore"] if state["explore"] is not None else max(1 - step / 200, 0.05)
        for _ in range(16):
            with torch.no_grad():
                best = int(model(F.one_hot(torch.tensor(place), 8).float()).argmax())
            action = rng.randrange(2) if rng.random() < explore else best
            after = min(place + 1, 7) if action else max(place - 1, 0)
            reward = state["reward"] * (after == 7)
            memory.append((place, action, reward, after))
            gained += reward
            place = 0 if after == 7 else after
        batch = rng.sample(memory, min(32, len(memory)))
        before, done, rewards, after_ = (torch.tensor(each) for each in zip(*batch, strict=True))
        with torch.no_grad():
            wanted = rewards + state["discount"] * target(F.one_hot(after_, 8).float()).max(1).values
        guess = model(F.one_hot(before, 8).float()).gather(1, done[:, None]).squeeze(1)
        loss = F.mse_loss(guess, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            target.load_state_dict(model.state_dict())
        run.log(
            {
                "td_loss": loss.item(),
                "episode_reward": gained,
                "q_values/mean": guess.mean().item(),
                "epsilon": explore,
            },
            step=step,
        )


def ranking(run: Tape, steps: int = 400, at: Change | None = None, seed: int = 0, lr: float = 0.2) -> None:
    """Numpy: factors of users and items by pairs."""
    rng = np.random.default_rng(seed)
    users, items = rng.normal(size=(80, 6)), rng.normal(size=(120, 6))
    p, q = 0.1 * rng.normal(size=(80, 6)), 0.1 * rng.normal(size=(120, 6))
    state: dict[str, Any] = {"swap": False, "lr": lr, "noise": 0.0}
    for step in range(steps):
        if at is not None:
            at(state, step)
        u, i, j = rng.integers(0, 80, 256), rng.integers(0, 120, 256), rng.integers(0, 120, 256)
        better = (users[u] * items[i]).sum(1) + 0.5 * rng.normal(size=256) > (users[u] * items[j]).sum(1)
        if state["swap"]:
            better = ~better
        sign = np.where(better, 1.0, -1.0)
        margin = sign * (p[u] * (q[i] - q[j])).sum(1)
        weight = (sign / (1 + np.exp(np.clip(margin, -50, 50))))[:, None]
        gu, gi = weight * (q[i] - q[j]), weight * p[u]
        np.add.at(p, u, state["lr"] * gu)
        np.add.at(q, i, state["lr"] * gi)
        np.add.at(q, j, -state["lr"] * gi)
        run.log(
            {"bpr_loss": float(np.logaddexp(0, -margin).mean()), "auc": float((margin > 0).mean()), "lr": state["lr"]},
            step=step,
        )


def distillation(run: Tape, steps: int = 350, at: Change | None = None, seed: int = 0) -> None:
    """A student learns a teacher's outputs, timed in spans, under Lightning's names."""
    torch.manual_seed(seed)
    nn = torch.nn
    teacher = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 6))
    student = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 6))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.3, momentum=0.9)
    state: dict[str, Any] = {"wait": 0.0, "broken": False, "every": 0, "busy": 0.0}
    for step in range(steps):
        if at is not None:
            at(state, step)
        with run.step(step):
            with run.span("train.data_load"):
                inputs = torch.randn(128, 10)
                if state["wait"]:
                    time.sleep(state["wait"])
            with run.span("train.forward"):
                with torch.no_grad():
                    soft = (4 * teacher(inputs)).softmax(1)
                    if state["broken"]:
                        soft = torch.full_like(soft, 1 / 6)
                loss = F.kl_div(student(inputs).log_softmax(1), soft, reduction="batchmean")
            with run.span("train.backward"):
                optimizer.zero_grad()
                loss.backward()
                if state["busy"]:
                    time.sleep(state["busy"])
            optimizer.step()
            if state["every"] and step % state["every"] == state["every"] - 1:
                with run.span("train.checkpoint.save"):
                    time.sleep(0.03)
            run.log({"train/distill_loss": loss.item(), "train/grad_norm": grad_norm(student), "train/lr": 0.3})


# Twenty faults.


@fault("blind", "level_shift spike", 250, window=20)
def vae_inputs_rescaled(run: Tape) -> None:
    """Pixels of 0 to 255 instead of 0 to 1."""
    vae(run, at=from_step(250, gain=255.0))


@fault("blind", "plateau weights_frozen", 60, window=50)
def vae_frozen(run: Tape) -> None:
    """The optimizer is skipped while there is still a lot to learn."""
    vae(run, at=from_step(60, updates=False), lr=5e-4)


@fault("blind", "level_shift", 260, window=20)
def vae_kl_weight(run: Tape) -> None:
    """The weight of the KL is a hundred times as high: the latent code collapses."""
    vae(run, at=from_step(260, beta=2.0))


@fault("blind", "level_shift", 280, window=20)
def diffusion_wrong_target(run: Tape) -> None:
    """The target is other noise than what was added."""
    diffusion(run, at=from_step(280, wrong_noise=True))


@fault("blind", "too_good", 250, window=60)
def diffusion_stuck(run: Tape) -> None:
    """The loader returns the same four examples for ever."""
    diffusion(run, steps=500, at=from_step(250, fixed=True))


@fault("blind", "spike level_shift", 300, window=10)
def diffusion_layer_lost(run: Tape) -> None:
    """A layer is drawn anew, far too wide."""
    diffusion(run, at=from_step(300, reset=True))


@fault("blind", "gradient_shift exploding_gradients", 260, window=40)
def diffusion_no_zero_grad(run: Tape) -> None:
    """Gradients are not cleared any more."""
    diffusion(run, at=from_step(260, zero=False))


@fault("blind", "level_shift accuracy_drop", 220, window=20)
def contrastive_pairs_mixed(run: Tape) -> None:
    """The second views are in another order."""
    contrastive(run, at=from_step(220, mixed=True))


@fault("blind", "lr_schedule", 200, window=5)
def contrastive_rate(run: Tape) -> None:
    """The rate is twenty times as high from step 200 on."""
    contrastive(run, at=from_step(200, lr=0.06))


@fault("blind", "lr_zero", 150, window=5)
def contrastive_rate_zero(run: Tape) -> None:
    """The rate becomes 0."""
    contrastive(run, at=from_step(150, lr=0.0))


@fault("blind", "level_shift divergence accuracy_drop", 170, window=30)
def graph_decay(run: Tape) -> None:
    """The weight decay is far too strong from step 170 on."""
    graph(run, at=from_step(170, decay=0.4))


@fault("blind", "level_shift accuracy_drop", 180, window=25)
def graph_links_lost(run: Tape) -> None:
    """The edges are lost."""
    graph(run, at=from_step(180, cut=True))


@fault("blind", "not_learning", window=300)
def graph_never_updated(run: Tape) -> None:
    """The optimizer is never called."""
    graph(run, at=from_step(0, updates=False))


@fault("blind", "dead_environment reward_collapse", 300, window=40)
def q_no_reward(run: Tape) -> None:
    """The environment stops giving rewards."""
    q_learning(run, at=from_step(300, reward=0.0))


@fault("blind", "spike level_shift reward_collapse divergence", 320, window=30)
def q_network_broken(run: Tape) -> None:
    """The output layer gets the wrong sign and thirty times its size."""
    q_learning(run, at=from_step(320, **{"break": True}))


@fault("blind", "reward_collapse", 330, window=40)
def q_explores_for_ever(run: Tape) -> None:
    """The exploration is reset to 1."""
    q_learning(run, at=from_step(330, explore=1.0))


@fault("blind", "level_shift accuracy_drop", 250, window=25)
def ranking_swapped(run: Tape) -> None:
    """Better and worse are swapped."""
    ranking(run, at=from_step(250, swap=True))


@fault("blind", "level_shift", 200, window=20)
def distillation_teacher_lost(run: Tape) -> None:
    """The teacher says the same of everything."""
    distillation(run, at=from_step(200, broken=True))


@fault("blind", "data_stall throughput_loss", 180, window=30, says="data_load")
def distillation_slow_data(run: Tape) -> None:
    """Loading takes 15 ms from step 180 on."""
    distillation(run, at=from_step(180, wait=0.015))


@fault("blind", "throughput_loss slow_span", 200, window=30, says="backward")
def distillation_slow_backward(run: Tape) -> None:
    """The backward pass takes 12 ms more from step 200 on."""
    distillation(run, at=from_step(200, busy=0.012))


# Twenty healthy trainings.


def _seeds(name: str, train: Callable[..., None], seeds: tuple[int, ...], **parts: Any) -> None:
    for seed in seeds:
        add_healthy("blind", f"{name}_{seed}", train, seed=seed, **parts)


_seeds("healthy_vae", vae, (10, 11), steps=450)
_seeds("healthy_vae_long", vae, (12,), steps=1200, lr=4e-3)
_seeds("healthy_diffusion", diffusion, (10, 11))
_seeds("healthy_diffusion_fast", diffusion, (12,), lr=6e-3, steps=600)
_seeds("healthy_contrastive", contrastive, (10, 11))
_seeds("healthy_graph", graph, (10, 11, 12))
_seeds("healthy_q", q_learning, (10, 11, 12))
_seeds("healthy_ranking", ranking, (10, 11))
_seeds("healthy_distillation", distillation, (10, 11))
_seeds("healthy_distillation_saves", distillation, (12,), at=lambda state, step: state.update(every=40))


@healthy("blind")
def contrastive_temperature(run: Tape) -> None:
    """The temperature falls slowly, as planned; so does the loss."""
    contrastive(run, at=lambda state, step: state.update(temperature=0.3 - 0.0005 * step), seed=13)


@healthy("blind")
def annealed_vae(run: Tape) -> None:
    """The weight of the KL rises slowly from 0: the loss rises with it, a little."""
    vae(run, at=lambda state, step: state.update(beta=0.02 * min(step / 300, 1.0)), seed=14)


@healthy("blind")
def ranking_decayed(run: Tape) -> None:
    """The rate is divided by ten at step 200."""
    ranking(run, at=lambda state, step: state.update(lr=0.3 if step < 200 else 0.03), seed=15)


@healthy("blind")
def distillation_cosine_wait(run: Tape) -> None:
    """Loading takes between 0 and 4 ms, in slow waves."""
    distillation(run, at=lambda state, step: state.update(wait=0.002 * (1 + math.sin(step / 30))), seed=16)
