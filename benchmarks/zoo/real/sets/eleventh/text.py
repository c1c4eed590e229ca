"""The eleventh set: small language models with one accident in the middle, and in the names of eight frameworks."""

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.real.case import fault, healthy
from benchmarks.zoo.real.sets.eleventh.tasks import (
    JUMP,
    SIGNS,
    Chain,
    F,
    Gpt,
    Job,
    Pair,
    Rate,
    Values,
    cosine,
    flat,
    nn,
    norm_of,
    spoil,
    text_loss,
)
from benchmarks.zoo.real.tape import Tape

At = Callable[[Job, int], None]
Told = Callable[[Job, int], Values | None]
CHAIN = Chain()
HELD_OUT_SEED = 9_000


def held_out(count: int = 48, length: int = 24) -> Pair:
    """Texts that are not trained on; the state of the generator stays."""
    with torch.random.fork_rng():
        torch.random.manual_seed(HELD_OUT_SEED)
        return CHAIN.pair(count, length)


def nano(every: int = 1, look: int = 50) -> Told:
    """The names of nanoGPT and its many copies."""
    pair = held_out()

    def told(job: Job, step: int) -> Values | None:
        if step % every:
            return None
        found = {"train/loss": job.losses[-1], "train/lr": job.now, "train/grad_norm": job.norm}
        return found | ({"val/loss": job.seen(pair)} if step % look == look - every else {})

    return told


def hugging(every: int = 10, look: int = 0, epoch: int = 100) -> Told:
    """The names of the Trainer: means since the last time, and an evaluation now and then."""
    pair = held_out()

    def told(job: Job, step: int) -> Values | None:
        if (step + 1) % every:
            return None
        found = {"loss": round(job.mean(every), 4), "grad_norm": job.norm, "learning_rate": job.now}
        found["epoch"] = (step + 1) / epoch
        return found | ({"eval_loss": job.seen(pair)} if look and (step + 1) % look == 0 else {})

    return told


def titan(every: int = 5, look: int = 50) -> Told:
    """The names of torchtitan."""
    pair = held_out()

    def told(job: Job, step: int) -> Values | None:
        if step % every:
            return None
        found = {"loss_metrics/global_avg_loss": job.losses[-1], "loss_metrics/global_max_loss": 1.02 * job.losses[-1]}
        found |= {"grad_norm": job.norm, "lr": job.now}
        return found | ({"validation_metrics/loss": job.seen(pair)} if look and step % look == 0 and step else {})

    return told


def megatron(every: int = 1) -> Told:
    """The names of Megatron-LM."""

    def told(job: Job, step: int) -> Values | None:
        if step % every:
            return None
        return {
            "lm loss": job.losses[-1],
            "learning-rate": job.now,
            "grad-norm": job.norm,
            "params-norm": norm_of(job.model),
            "loss-scale": 1.0,
        }

    return told


def tune(every: int = 1) -> Told:
    """The names of torchtune."""
    return lambda job, step: (
        {"loss": job.losses[-1], "lr": job.now, "grad_norm": job.norm} if step % every == 0 else None
    )


def gpt(
    tape: Tape,
    told: Told,
    at: At | None = None,
    seed: int = 601,
    steps: int = 400,
    rate: Rate | None = None,
    rows: int = 8,
    length: int = 24,
    drop: float = 0.0,
    layers: int = 2,
    **job: Any,
) -> None:
    """A small decoder on the texts of the chain."""
    torch.manual_seed(seed)
    model = Gpt(layers=layers, drop=drop)
    batch = lambda: CHAIN.pair(rows, length)  # noqa: E731
    Job(model, batch, text_loss, told, steps, rate or cosine(steps, 4e-3), **job).fit(tape, at)


def once(begin: int, do: Callable[[Job], None]) -> At:
    """An accident at one step."""
    return lambda job, step: do(job) if step == begin else None


def put(begin: int, **parts: Any) -> At:
    """Parts of the job that are others from a step on."""

    def change(job: Job) -> None:
        for name, value in parts.items():
            setattr(job, name, value)

    return once(begin, change)


@healthy("eleventh", config={"max_iters": 400, "learning_rate": 4e-3, "min_lr": 4e-4, "warmup_iters": 20})
def healthy_chain(tape: Tape) -> None:
    """A small decoder, told at each step."""
    gpt(tape, nano())


@healthy("eleventh", config={"max_steps": 400, "logging_steps": 10, "eval_steps": 50, "lr_scheduler_type": "linear"})
def healthy_chain_by_the_trainer(tape: Tape) -> None:
    """The same by another schedule, with dropout: the loss of the training is above that of the evaluation."""
    gpt(tape, hugging(look=50), rate=lambda step: 4e-3 * (1 - step / 400), drop=0.15, seed=602)


@healthy("eleventh", config={"training.steps": 360, "lr_scheduler.warmup_steps": 30, "lr_scheduler.decay_ratio": 0.25})
def healthy_chain_held_and_cooled(tape: Tape) -> None:
    """A rate that is held, and comes down in the last quarter."""
    gpt(tape, titan(), steps=360, rate=lambda step: 3e-3 * min((step + 1) / 30, 1, (360 - step) / 90), seed=603)


@healthy("eleventh", config={"fp16": True, "initial-loss-scale": 32768, "loss-scale-window": 40})
def healthy_chain_in_half(tape: Tape) -> None:
    """A loss scale that grows every forty steps, and is halved with a skipped step when it has grown too far."""
    state = {"scale": 32768.0, "good": 0}

    def at(job: Job, step: int) -> None:
        job.idle = state["scale"] > 2e5

    def told(job: Job, step: int) -> Values:
        found = skipping(job, state["scale"], step)
        state["good"] = 0 if job.idle else state["good"] + 1
        state["scale"] *= 0.5 if job.idle else 2.0 if state["good"] % 40 == 39 else 1.0
        return found

    gpt(tape, told, at, seed=604, rate=cosine(400, 3e-3, 40))


@healthy("eleventh", config={"gradient_accumulation_steps": 4, "clip_grad_norm": 1.0, "epochs": 3})
def healthy_chain_in_three_passes(tape: Tape) -> None:
    """Three passes over forty batches, in four parts each: the loss comes down in stairs."""
    torch.manual_seed(605)
    data = [CHAIN.pair(4, 24) for _ in range(440)]
    state = {"at": 0}

    def batch() -> Pair:
        state["at"] += 1
        if state["at"] % len(data) == 0:
            order = torch.randperm(len(data)).tolist()
            data[:] = [data[place] for place in order]
        return data[state["at"] % len(data)]

    told = lambda job, step: {"loss": job.losses[-1], "lr": job.now, "epoch": step // 110}  # noqa: E731
    Job(Gpt(), batch, text_loss, told, 330, cosine(330, 3e-3), parts=4).fit(tape)


@healthy("eleventh", config={"max_steps": 420, "cycles": 3, "scheduler": "CosineAnnealingWarmRestarts", "T_0": 140})
def healthy_chain_begun_three_times(tape: Tape) -> None:
    """A rate that begins anew twice, as the settings say."""
    part = cosine(140, 4e-3, 5, 0.02)
    gpt(tape, tune(), steps=420, rate=lambda step: part(step % 140), seed=606)


@healthy("eleventh", config={"context": [8, 16, 48], "stage_steps": 120})
def healthy_longer_contexts(tape: Tape) -> None:
    """Contexts of 8, 16 and 48 signs, as `seq_len` says; the loss falls a little with each."""
    state = {"length": 8}

    def told(job: Job, step: int) -> Values:
        return {"loss": job.losses[-1], "seq_len": state["length"], "tokens": step * 400, "grad_norm": job.norm}

    def at(job: Job, step: int) -> None:
        state["length"] = (8, 16, 48)[min(step // 120, 2)]
        job.batch = lambda: CHAIN.pair(384 // state["length"], state["length"])

    gpt(tape, told, at, steps=360, seed=607)


@healthy("eleventh", config={"optimizer": "sgd", "momentum": 0.9, "batch_size": 4})
def healthy_chain_in_small_batches(tape: Tape) -> None:
    """Four short texts at a step: a loss that says little at each."""
    told = lambda job, step: {"train_loss": job.losses[-1]}  # noqa: E731
    gpt(tape, told, rows=3, length=16, seed=608, steps=600, rate=cosine(600, 3e-3))


@fault("eleventh", JUMP, step=250, window=12, config={"max_iters": 400, "learning_rate": 4e-3})
def chain_answers_shuffled(tape: Tape) -> None:
    """From 250 on the targets are those of other places."""

    def mix(job: Job) -> None:
        def batch() -> Pair:
            rows, targets = CHAIN.pair(8, 24)
            return rows, targets.flatten()[torch.randperm(targets.numel())].view_as(targets)

        job.batch = batch

    gpt(tape, nano(), once(250, mix), seed=611)


@fault("eleventh", JUMP + " gradient_shift exploding_gradients", step=220, window=20, config={"logging_steps": 10})
def chain_block_destroyed(tape: Tape) -> None:
    """The weights of the second block are noise from 214 on; means of ten steps are logged."""
    gpt(tape, hugging(), once(214, lambda job: spoil(job.model.blocks[1], 0.4)), seed=612)


@fault("eleventh", "too_good stuck_batch level_shift overfit", step=240, window=70, config={"training.steps": 420})
def chain_of_one_batch(tape: Tape) -> None:
    """From 230 on the loader gives the same batch for ever: it is learnt by heart, and what is held out gets worse."""

    def stick(job: Job) -> None:
        kept = job.batch()
        job.batch = lambda: kept

    gpt(tape, titan(look=25), once(230, stick), seed=613, steps=420, rate=cosine(420, 4e-3, floor=0.5))


@fault("eleventh", "weights_frozen plateau not_learning constant", step=110, window=50)
def chain_not_stepped(tape: Tape) -> None:
    """From 90 on the optimizer holds other tensors: the norm of the parameters stays, and the loss."""
    gpt(tape, megatron(), put(90, idle=True), seed=614, rate=cosine(400, 6e-4, 60))


@fault("eleventh", "lr_schedule " + JUMP, step=300, window=12, config={"lr_scheduler": "cosine", "max_steps": 400})
def chain_schedule_built_anew(tape: Tape) -> None:
    """The schedule is built anew at 300: the rate is at its peak at once."""
    schedule = cosine(400, 6e-3, 1)
    gpt(tape, tune(), seed=615, rate=lambda step: schedule(step) if step < 300 else schedule(step - 299))


@fault(
    "eleventh",
    "gradients_not_cleared gradient_shift exploding_gradients divergence level_shift spike oscillation plateau",
    step=200,
    window=35,
)
def chain_gradients_piled_up(tape: Tape) -> None:
    """From 180 on the gradients are no longer set to zero."""

    def told(job: Job, step: int) -> Values | None:
        if step % 5:
            return None
        return {"train_loss_step": job.losses[-1], "grad_2.0_norm_total": job.norm, "lr-AdamW": job.now, "epoch": 0}

    gpt(tape, told, put(180, zero=False), seed=616, clip=1e9, rate=flat(2e-3))


@fault("eleventh", JUMP, step=240, window=10, config={"data": "shards/*.bin"})
def chain_shard_of_noise(tape: Tape) -> None:
    """A shard from 240 to 290 has bytes of another file."""

    def batch() -> Pair:
        rows = torch.randint(0, SIGNS, (8, 25))
        return rows[:, :-1], rows[:, 1:]

    def at(job: Job, step: int) -> None:
        job.batch = batch if 240 <= step < 290 else lambda: CHAIN.pair(8, 24)

    gpt(tape, tune(), at, seed=617)


@fault("eleventh", "level_shift spike divergence gradient_shift exploding_gradients", step=200, window=12)
def chain_parts_summed(tape: Tape) -> None:
    """From 200 on the losses of four parts are summed up."""
    gpt(tape, tune(2), put(200, shared=False), seed=618, parts=4, rows=4, length=24)


@fault("eleventh", JUMP + " bad_resume gradient_shift exploding_gradients", step=260, window=12)
def chain_taken_up_with_an_old_head(tape: Tape) -> None:
    """After a restart at 260 the head and the table of signs are those of step 20; the rest is new."""
    kept: dict[str, Any] = {}

    def at(job: Job, step: int) -> None:
        if step == 20:
            kept.update({name: value.clone() for name, value in job.model.state_dict().items()})
        if step == 260:
            old = {name: value for name, value in kept.items() if name.startswith(("head", "signs"))}
            job.model.load_state_dict(old, strict=False)
            job.optimizer = torch.optim.AdamW(job.model.parameters(), weight_decay=0.01)

    gpt(tape, tune(), at, seed=619)


@fault("eleventh", JUMP, step=230, window=20, config={"logging_steps": 5})
def chain_of_another_tokeniser(tape: Tape) -> None:
    """From 230 on the texts are numbered by another table."""
    table = torch.randperm(SIGNS, generator=torch.Generator().manual_seed(1))

    def number(job: Job) -> None:
        job.batch = lambda: tuple(table[part] for part in CHAIN.pair(8, 24))

    gpt(tape, hugging(5), once(230, number), seed=621)


@fault("eleventh", JUMP, step=190, window=15)
def chain_with_much_dropout(tape: Tape) -> None:
    """From 190 on the dropout is 0.6 instead of 0, as a setting of another experiment says."""

    def drop(job: Job) -> None:
        for block in job.model.blocks:
            block.drop.p = 0.6

    gpt(tape, nano(2, 40), once(190, drop), seed=624)


def skipping(job: Job, scale: float, step: int) -> Values:
    """What Megatron logs in half precision."""
    found = {"lm loss": job.losses[-1], "learning-rate": job.now, "loss-scale": scale}
    return found | {"skipped iterations": float(job.idle)} | ({} if job.idle else {"grad-norm": job.norm})


@fault("eleventh", "scaler_collapse skipped_steps weights_frozen plateau", step=172, window=25)
def chain_scale_runs_down(tape: Tape) -> None:
    """From 170 on each step overflows: the scale is halved, and the weights stay."""
    state = {"scale": 65536.0}

    def told(job: Job, step: int) -> Values:
        state["scale"] = max(state["scale"] * (0.5 if job.idle else 1.0), 1.0)
        return skipping(job, state["scale"], step)

    gpt(tape, told, put(170, idle=True), seed=625, rate=cosine(400, 5e-4))


class Mirror(nn.Module):  # type: ignore[misc]
    """A recurrent encoder and decoder with attention, that turns a row of signs around."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.signs = nn.Embedding(11, width)
        self.read, self.write = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.key, self.head = nn.Linear(width, width), nn.Linear(2 * width, 11)

    def forward(self, given: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
        """The scores of each sign of the answer."""
        memory, last = self.read(self.signs(given))
        asked, _ = self.write(self.signs(said), last)
        found = (self.key(asked) @ memory.transpose(1, 2)).softmax(-1) @ memory
        return self.head(torch.cat([asked, found], -1))


def mirrored(tape: Tape, at: At | None = None, seed: int = 641, shift: bool = True, steps: int = 420) -> None:
    """Rows of signs turned around; told every third step in the names of fairseq."""
    torch.manual_seed(seed)
    model = Mirror()
    state = {"right": 0.0}

    def batch() -> Pair:
        rows = torch.randint(0, 10, (24, 9))
        return rows, rows.flip(1)

    def loss(model: Any, pair: Pair) -> torch.Tensor:
        begin = torch.full((24, 1), 10)
        said = torch.cat([begin, pair[1][:, :-1]], 1) if shift else pair[1]
        scores = model(pair[0], said)
        state["right"] = float((scores.argmax(-1) == pair[1]).float().mean())
        return F.cross_entropy(scores.flatten(0, 1), pair[1].flatten())

    def told(job: Job, step: int) -> Values | None:
        if step % 3:
            return None
        bits = job.losses[-1] / math.log(2)
        return {"nll_loss": bits, "ppl": 2**bits, "token_acc": state["right"], "gnorm": job.norm, "lr": job.now}

    Job(model, batch, loss, told, steps, cosine(steps, 6e-3)).fit(tape, at)


@healthy("eleventh", config={"arch": "gru_attention", "max_update": 420})
def healthy_mirror(tape: Tape) -> None:
    """Rows turned around."""
    mirrored(tape)


@fault("eleventh", "too_good", config={"arch": "gru_attention", "task": "reverse"})
def mirror_told_the_answer(tape: Tape) -> None:
    """The decoder is given the sign that it shall say: nothing is left after some dozen steps."""
    mirrored(tape, seed=643, shift=False)


def asked(tape: Tape, at: At | None = None, seed: int = 651, steps: int = 300) -> None:
    """Answers to prompts by a decoder, of which only the answers count; the names of SFTTrainer."""
    torch.manual_seed(seed)
    model = Gpt(drop=0.05)
    table = torch.randperm(SIGNS)
    state = {"right": 0.0, "tokens": 0}

    def batch() -> Pair:
        rows = CHAIN.rows(12, 12)
        text = torch.cat([rows, table[rows]], 1)
        targets = text[:, 1:].clone()
        targets[:, :11] = -100
        return text[:, :-1], targets

    def loss(model: Any, pair: Pair) -> torch.Tensor:
        scores = model(pair[0])
        counted = pair[1] != -100
        state["right"] = float((scores.argmax(-1) == pair[1])[counted].float().mean()) if counted.any() else 0.0
        state["tokens"] += int(counted.sum())
        return F.cross_entropy(scores.flatten(0, 1), pair[1].flatten(), ignore_index=-100)

    def told(job: Job, step: int) -> Values | None:
        found = {"loss": job.losses[-1], "learning_rate": job.now, "grad_norm": job.norm, "epoch": step / 150}
        return found | {"mean_token_accuracy": state["right"], "num_tokens": state["tokens"]}

    Job(model, batch, loss, told, steps, cosine(steps, 5e-3)).fit(tape, at)


@healthy("eleventh", config={"trainer": "SFTTrainer", "completion_only_loss": True, "num_train_epochs": 2})
def healthy_answers(tape: Tape) -> None:
    """Prompts and their answers by a table."""
    asked(tape)


@fault("eleventh", "gradient_shift vanishing_gradients weights_frozen unused_parameters plateau", step=85, window=40)
def answers_adapter_switched_off(tape: Tape) -> None:
    """From 75 on all but the norms are frozen, by a wrong pattern of names: gradients of a seventh."""

    def freeze(job: Job) -> None:
        for name, weight in job.model.named_parameters():
            weight.requires_grad_("norm" in name)
            weight.grad = None

    asked(tape, once(75, freeze), seed=653, steps=360)
