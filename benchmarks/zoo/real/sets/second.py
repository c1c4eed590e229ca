"""The second set: trainings written after the detectors had been mended on the fresh one."""

import math
from typing import Any

import torch

from benchmarks.zoo.real.case import fault
from benchmarks.zoo.real.change import Change, add_healthy, from_step, grad_norm
from benchmarks.zoo.real.tape import Tape

F = torch.nn.functional
nn = torch.nn
State = dict[str, Any]


def field(run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, lr: float = 3e-3) -> None:
    """Fits a function of two coordinates from sines of them; logs the error and the signal to noise ratio."""
    torch.manual_seed(seed)
    waves = 3 * torch.randn(2, 32)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    state: State = {"swapped": False, "lr": lr}
    for step in range(steps):
        if at is not None:
            at(state, step)
        for group in optimizer.param_groups:
            group["lr"] = state["lr"] * 0.5 ** (step // 120)
        with run.step(step):
            points = 2 * torch.rand(128, 2) - 1
            wanted = torch.sin(4 * points[:, :1]) * torch.cos(3 * points[:, 1:]) + 0.3 * points[:, :1]
            seen = (points.flip(1) if state["swapped"] else points) @ waves
            error = F.mse_loss(model(torch.cat([seen.sin(), seen.cos()], 1)), wanted)
            optimizer.zero_grad()
            error.backward()
            optimizer.step()
            run.log({"train/mse": error.item(), "train/psnr": -10 * math.log10(max(error.item(), 1e-12))})


def forecast(run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, restarts: bool = False) -> None:
    """Predicts the next value of noisy waves; evaluated every 20 steps by the mean absolute error."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    state: State = {"scale": 1.0, "leak": False}

    def waves(count: int) -> torch.Tensor:
        phase, speed = 6 * torch.rand(count, 1), 0.2 + 0.4 * torch.rand(count, 1)
        return 5 * (phase + speed * torch.arange(25)).sin() + 0.5 * torch.randn(count, 25)

    for step in range(steps):
        if at is not None:
            at(state, step)
        rate = 3e-3 * (0.5 * (1 + math.cos(math.pi * (step % 80) / 80)) if restarts else 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with run.step(step):
            rows = waves(64)
            given = rows[:, :-1].clone()
            if state["leak"]:
                given[:, 0] = rows[:, -1]
            loss = F.mse_loss(model(given), rows[:, -1:]) * state["scale"]
            optimizer.zero_grad()
            loss.backward()
            norm = grad_norm(model)
            optimizer.step()
            values = {"loss": loss.item(), "total_norm": norm, "lr": rate}
            if step % 20 == 19:
                with run.span("train.evaluate"), torch.no_grad():
                    rows = waves(300)
                    values["val_mae"] = (model(rows[:, :-1]) - rows[:, -1:]).abs().mean().item()
            run.log(values)


def words(run: Tape, epochs: int = 28, at: Change | None = None, seed: int = 0, lr: float = 0.01) -> None:
    """Classifies bags of words; logged once an epoch with a held-out loss and F1 score."""
    torch.manual_seed(seed)
    topics = 0.7 * torch.randn(4, 80)
    labels = torch.randint(0, 4, (1600,))
    bags = torch.distributions.Multinomial(12, logits=topics[labels]).sample()
    model = nn.Sequential(nn.Linear(80, 24), nn.ReLU(), nn.Dropout(0.4), nn.Linear(24, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.3)
    state: State = {"shift": 0, "held_out_shift": 0}
    for epoch in range(epochs):
        if at is not None:
            at(state, epoch)
        total = 0.0
        with run.step(epoch):
            for rows in torch.randperm(1200).split(100):
                loss = F.cross_entropy(model(bags[rows].roll(state["shift"], 1)), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() / 12
            model.eval()
            with torch.no_grad():
                out = model(bags[1200:].roll(state["held_out_shift"], 1))
            model.train()
            right = (out.argmax(1) == labels[1200:]).float().mean().item()
            unseen = F.cross_entropy(out, labels[1200:]).item()
            run.log({"train_loss": total, "val_loss": unseen, "val_f1_score": right}, epoch)


def triplets(run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, batch: int = 48) -> None:
    """Points of one kind are to be nearer to each other than to others, by a margin."""
    torch.manual_seed(seed)
    centers = torch.randn(30, 16)
    model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    state: State = {"swapped": False, "zero": False}
    for step in range(steps):
        if at is not None:
            at(state, step)
        if state["zero"]:
            with torch.no_grad():
                model[2].weight.zero_()
                model[0].bias.fill_(-50.0)
        with run.step(step):
            kinds = torch.randint(0, 30, (batch,))
            others = (kinds + torch.randint(1, 30, (batch,))) % 30
            anchor, same, other = (
                F.normalize(model(centers[each] + 0.8 * torch.randn(batch, 16)), dim=1)
                for each in (kinds, kinds, others)
            )
            if state["swapped"]:
                same, other = other, same
            near, far = (anchor - same).square().sum(1), (anchor - other).square().sum(1)
            loss = F.relu(near - far + 0.5).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log({"triplet_loss": loss.item(), "triplet_accuracy": (near < far).float().mean().item()})


def sets(run: Tape, steps: int = 320, at: Change | None = None, seed: int = 0, batch: int = 64) -> None:
    """Predicts the largest difference within a set of numbers; errors on both kinds of data."""
    torch.manual_seed(seed)
    each, whole = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 32)), nn.Linear(32, 1)
    weights = [*each.parameters(), *whole.parameters()]
    optimizer = torch.optim.Adam(weights, lr=2e-3)
    state: State = {"updates": True, "bad": False}
    fixed = torch.rand(300, 10, 1)
    for step in range(steps):
        if at is not None:
            at(state, step)
        with run.step(step):
            numbers = torch.rand(batch, 10, 1)
            wanted = numbers.amax(1) - numbers.amin(1)
            if state["bad"]:
                numbers[0, 0] = math.inf
            error = F.l1_loss(whole(each(numbers).amax(1)), wanted)
            optimizer.zero_grad()
            error.backward()
            if state["updates"]:
                optimizer.step()
            values = {"train_error": error.item()}
            if step % 25 == 24:
                with torch.no_grad():
                    guess = whole(each(fixed).amax(1))
                    values["val_error"] = F.l1_loss(guess, fixed.amax(1) - fixed.amin(1)).item()
            run.log(values)


def walker(run: Tape, updates: int = 260, at: Change | None = None, seed: int = 0) -> None:
    """A policy chooses one of six doors by a sign in front of it; policy gradient with a baseline."""
    torch.manual_seed(seed)
    model = nn.Linear(6, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    state: State = {"sign": 1.0}
    for update in range(updates):
        if at is not None:
            at(state, update)
        with run.step(update):
            signs = torch.randint(0, 6, (32,))
            chances = torch.distributions.Categorical(logits=model(F.one_hot(signs, 6).float()))
            doors = chances.sample()
            rewards = (doors == signs).float() + 0.2 * torch.randn(32)
            entropy = chances.entropy().mean()
            loss = -(chances.log_prob(doors) * (rewards - rewards.mean())).mean() * state["sign"]
            optimizer.zero_grad()
            (loss - 0.02 * entropy).backward()
            optimizer.step()
            values = {"policy_loss": loss.item(), "policy_entropy": entropy.item()}
            run.log(values | {"avg_return": rewards.mean().item()})


def copying(run: Tape, steps: int = 260, at: Change | None = None, seed: int = 0, lr: float = 3e-3) -> None:
    """A layer of attention repeats the token two places before; logs perplexity and token accuracy."""
    torch.manual_seed(seed)
    embed, places, out = nn.Embedding(12, 32), nn.Parameter(0.1 * torch.randn(10, 32)), nn.Linear(32, 12)
    layer = nn.MultiheadAttention(32, 2, batch_first=True)
    weights = [*embed.parameters(), places, *out.parameters(), *layer.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=lr)
    mask = torch.ones(10, 10).triu(1).bool()
    state: State = {"clear": True}
    for step in range(steps):
        if at is not None:
            at(state, step)
        with run.step(step):
            tokens = torch.randint(0, 12, (32, 10))
            inside = embed(tokens) + places
            scores = out(inside + layer(inside, inside, inside, attn_mask=mask, need_weights=False)[0])[:, 2:]
            loss = F.cross_entropy(scores.reshape(-1, 12), tokens[:, :-2].reshape(-1))
            if state["clear"]:
                optimizer.zero_grad()
            loss.backward()
            norm = float(torch.stack([each.grad.norm() for each in weights if each.grad is not None]).norm())
            optimizer.step()
            right = (scores.argmax(2) == tokens[:, :-2]).float().mean().item()
            run.log({"train/ppl": math.exp(loss.item()), "train/token_accuracy": right, "train/grad_norm": norm})


@fault("second", "level_shift spike accuracy_drop", 200)
def field_coordinates_swapped(run: Tape) -> None:
    """The coordinates are exchanged from step 200 on."""
    field(run, at=from_step(200, swapped=True))


@fault("second", "not_learning oscillation divergence spike absurd_loss", window=320)
def field_rate_far_too_high(run: Tape) -> None:
    """The learning rate is 300 times too high from the start."""
    field(run, at=from_step(0, lr=1.0))


@fault("second", "too_good level_shift", 200)
def forecast_loss_rescaled(run: Tape) -> None:
    """The loss is divided by 50 from step 200 on."""
    forecast(run, at=from_step(200, scale=0.02))


@fault("second", "too_good level_shift spike overfit", 180, window=60)
def forecast_future_leaks(run: Tape) -> None:
    """The value that is to be predicted is among the inputs of the training from step 180 on."""
    forecast(run, at=from_step(180, leak=True))


@fault("second", "level_shift spike accuracy_drop", 14, window=3)
def words_vocabulary_shifted(run: Tape) -> None:
    """The numbers of the words are off by one from epoch 14 on, in the training."""
    words(run, at=from_step(14, shift=1))


@fault("second", "level_shift accuracy_drop overfit", 12, window=3)
def words_held_out_of_another_kind(run: Tape) -> None:
    """The numbers of the words are off by one from epoch 12 on, in the evaluation."""
    words(run, at=from_step(12, held_out_shift=1))


@fault("second", "constant plateau level_shift accuracy_drop not_learning vanishing_gradients spike", 150)
def triplets_collapse(run: Tape) -> None:
    """All points become one from step 150 on: the loss is the margin."""
    triplets(run, at=from_step(150, zero=True))


@fault("second", "level_shift spike accuracy_drop divergence", 180)
def triplets_swapped(run: Tape) -> None:
    """Equal and other points are exchanged from step 180 on."""
    triplets(run, at=from_step(180, swapped=True))


@fault("second", "weights_frozen plateau", 150, window=60)
def sets_frozen(run: Tape) -> None:
    """The optimizer is no longer called from step 150 on."""
    sets(run, at=from_step(150, updates=False))


@fault("second", "not_finite", 170, window=3)
def sets_with_an_infinity(run: Tape) -> None:
    """A number is infinite from step 170 on."""
    sets(run, at=from_step(170, bad=True))


@fault("second", "reward_collapse accuracy_drop", 130, window=40)
def walker_wrong_sign(run: Tape) -> None:
    """The loss of the policy has the wrong sign from update 130 on."""
    walker(run, at=from_step(130, sign=-1.0))


@fault("second", "gradient_shift exploding_gradients level_shift divergence spike", 120, window=40)
def copying_not_cleared(run: Tape) -> None:
    """Gradients are not cleared from step 120 on."""
    copying(run, at=from_step(120, clear=False))


add_healthy("second", "healthy_field", field)
add_healthy("second", "healthy_forecast", forecast)
add_healthy("second", "healthy_forecast_restarts", forecast, restarts=True, seed=1)
add_healthy("second", "healthy_words", words)
add_healthy("second", "healthy_words_slow", words, lr=0.003, seed=2)
add_healthy("second", "healthy_triplets", triplets)
add_healthy("second", "healthy_triplets_batch_of_8", triplets, batch=8, seed=3)
add_healthy("second", "healthy_sets", sets)
add_healthy("second", "healthy_walker", walker)
add_healthy("second", "healthy_copying", copying)
