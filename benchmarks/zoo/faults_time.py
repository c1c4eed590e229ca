"""Runs with a fault of time, of ranks, of resources or of records."""

import random

from benchmarks.zoo.faults import Made, _middle, fault
from benchmarks.zoo.healthy import crowded
from benchmarks.zoo.story import Truth, add_system, around, training


@fault
def data_stall(rng: random.Random) -> Made:
    """One step waits for data."""
    story = training(rng, spans=True)
    at = _middle(rng, story)
    while "train.evaluate" in story.spans and story.spans["train.evaluate"][0][at]:
        at += 1
    story.spans["train.data_load"][0][at] = story.step_seconds * rng.uniform(3, 20)
    return story, Truth(("data_stall",), at, 1, None, "data_load")


@fault
def periodic_stall(rng: random.Random) -> Made:
    """Every so many steps the loop waits for data."""
    story = training(rng, steps=900, spans=True)
    every, at = rng.choice((25, 37, 64)), rng.randrange(100, 300)
    took = story.step_seconds * rng.uniform(2, 8)
    for t in range(at, story.steps, every):
        story.spans["train.data_load"][0][t] = around(rng, took, 0.05)
    return story, Truth(("periodic_stall",), at, every + 2, None, "data_load")


@fault
def masked_stall(rng: random.Random) -> Made:
    """A stall that is shorter than the evaluations around it."""
    story = training(rng, steps=600, spans=True)
    story.spans["train.evaluate"] = [
        [around(rng, 15 * story.step_seconds, 0.05) if t and t % 50 == 0 else 0.0 for t in range(600)]
    ]
    at = rng.randrange(220, 520)
    at += at % 50 == 0
    story.spans["train.data_load"][0][at] = story.step_seconds * rng.uniform(3, 8)
    return story, Truth(("data_stall",), at, 1, None, "data_load")


@fault
def stall_on_crowded_machine(rng: random.Random) -> Made:
    """One rank waits long for data, early in the run, on a machine with other work."""
    story, at, rank = crowded(rng), rng.randrange(31, 60), rng.randrange(4)
    story.spans["train.data_load"][rank][at] = story.step_seconds * rng.uniform(6, 20)
    return story, Truth(("data_stall",), at, 1, (rank,), "data_load")


@fault
def stall_beside_straggler(rng: random.Random) -> Made:
    """One rank is late now and then; another waits long for data, once."""
    story, truth = intermittent_straggler(rng)
    (late,) = truth.ranks or (0,)
    rank, at = (late + 1) % 4, rng.randrange(500, 800)
    story.spans["train.data_load"][rank][at] = story.step_seconds * rng.uniform(6, 20)
    return story, Truth(("data_stall",), at, 1, (rank,), "data_load")


@fault
def straggler(rng: random.Random) -> Made:
    """One rank of several takes a quarter longer."""
    story = training(rng, world=rng.choice((4, 8)))
    at, rank = _middle(rng, story, 0.1, 0.6), rng.randrange(story.world)
    for t in range(at, story.steps):
        for name in ("train.forward", "train.backward"):
            story.spans[name][rank][t] *= 1.25
    return story, Truth(("straggler",), at, 30, (rank,))


@fault
def intermittent_straggler(rng: random.Random) -> Made:
    """One rank is late now and then."""
    story = training(rng, steps=900, world=4)
    at, rank = rng.randrange(150, 300), rng.randrange(4)
    for t in range(at, story.steps):
        if rng.random() < 0.12:
            story.spans["train.backward"][rank][t] *= rng.uniform(1.8, 2.6)
    return story, Truth(("intermittent_straggler", "straggler"), at, 60, (rank,))


@fault
def slow_node(rng: random.Random) -> Made:
    """Both ranks of one machine are slow."""
    story = training(rng, world=8)
    story.per_host = 2
    at, node = _middle(rng, story, 0.2, 0.6), rng.randrange(4)
    for rank in (2 * node, 2 * node + 1):
        for t in range(at, story.steps):
            for name in ("train.forward", "train.backward"):
                story.spans[name][rank][t] *= 1.35
    return story, Truth(("straggler",), at, 30, (2 * node, 2 * node + 1))


@fault
def slow_link(rng: random.Random) -> Made:
    """The collective takes longer on every rank."""
    story = training(rng, world=4)
    at, times = _middle(rng, story), rng.uniform(2.0, 4.0)
    row = story.spans["all_reduce"][0]
    story.spans["all_reduce"] = [[took * (times if t >= at else 1) for t, took in enumerate(row)]] * 4
    return story, Truth(("slow_link",), at, 20, None, "all_reduce")


@fault
def growing_checkpoint(rng: random.Random) -> Made:
    """Each checkpoint takes longer than the one before."""
    story = training(rng, steps=900, spans=True)
    begin = story.step_seconds * rng.uniform(2, 5)
    story.spans["train.checkpoint.save"] = [
        [around(rng, begin * (1 + 0.25 * (t // 60)), 0.03) if t and t % 60 == 0 else 0.0 for t in range(900)]
    ]
    return story, Truth(("checkpoint_growth",), None, 0, None, "checkpoint")


@fault
def throughput_loss(rng: random.Random) -> Made:
    """A tenth of the throughput is lost from some step on."""
    story = training(rng, steps=rng.choice((600, 900, 1500)), spans=False)
    at, level, noise = _middle(rng, story), rng.uniform(1e3, 1e5), rng.uniform(0.005, 0.02)
    key = rng.choice(("tokens_per_second", "perf/samples_per_sec", "throughput"))
    lost = rng.uniform(0.1, 0.2)
    story.curves[key] = [around(rng, level * (1 - lost if t >= at else 1), noise) for t in range(story.steps)]
    return story, Truth(("throughput_loss",), at, 25, None, None)


@fault
def slower_steps(rng: random.Random) -> Made:
    """Every step takes a seventh longer from some step on."""
    story = training(rng, steps=rng.choice((600, 900)), spans=True)
    at = _middle(rng, story)
    for name in ("train.forward", "train.backward"):
        for t in range(at, story.steps):
            story.spans[name][0][t] *= 1.18
    return story, Truth(("throughput_loss",), at, 25)


@fault
def slower_than_before(rng: random.Random) -> Made:
    """Every step takes longer than in the earlier runs of the project."""
    story = training(rng, spans=True)
    usual = story.step_seconds / rng.uniform(1.25, 1.6)
    story.earlier = tuple(around(rng, usual, 0.03) for _ in range(rng.choice((3, 5, 8))))
    return story, Truth(("slower_than_before",), 0, 5)


@fault
def gpu_idle(rng: random.Random) -> Made:
    """A GPU that was busy is idle."""
    story = training(rng, steps=600)
    add_system(story)
    at = rng.randrange(50, 90)
    for i in range(at, 121):
        story.system["gpu/0/utilization"][i] = abs(rng.gauss(0.04, 0.03))
    return story, Truth(("gpu_idle",), None, 0)


@fault
def hang(rng: random.Random) -> Made:
    """One rank never reaches the collective."""
    story = training(rng, world=4)
    rank, at = rng.randrange(4), _middle(rng, story)
    story.hangs = (rank, at, rng.choice(("train.data_load", "train.forward")))
    return story, Truth(("hang",), at, 2, (rank,))


@fault
def dead_rank(rng: random.Random) -> Made:
    """One process is killed."""
    story = training(rng, world=4)
    rank, at = rng.randrange(4), _middle(rng, story)
    story.dies = (rank, at)
    return story, Truth(("dead_rank",), at, 2, (rank,))


@fault
def desync(rng: random.Random) -> Made:
    """A metric that was the same on all ranks differs on one."""
    story = training(rng, world=4)
    at, rank = _middle(rng, story), rng.randrange(4)
    norm = [around(rng, 50.0, 0.001) for _ in range(story.steps)]
    story.own["param_norm"] = [
        [v * (1 + (0.001 if t >= at and r == rank else 0)) for t, v in enumerate(norm)] for r in range(4)
    ]
    return story, Truth(("desync",), at, 5, (rank,), "param_norm")


@fault
def config_differs(rng: random.Random) -> Made:
    """One rank has another batch size."""
    story = training(rng, world=4)
    rank = rng.randrange(4)
    story.rank_config[rank] = {"batch_size": 7}
    return story, Truth(("config_differs",), None, 0, (rank,), "batch_size")


@fault
def batch_size_differs(rng: random.Random) -> Made:
    """One rank records another batch size at every step."""
    story = training(rng, world=4)
    rank, size = rng.randrange(4), rng.choice((8, 32, 64))
    story.own["batch_size"] = [[float(size // 2 if r == rank else size)] * story.steps for r in range(4)]
    return story, Truth(("config_differs",), None, 0, (rank,), "batch_size")


@fault
def retries_counted(rng: random.Random) -> Made:
    """A counter of retries rises far faster than before."""
    story = training(rng, spans=False)
    at, total, totals = _middle(rng, story), 0, []
    for t in range(story.steps):
        total += rng.randrange(10, 40) if t >= at else rng.random() < 0.05
        totals.append(float(total))
    story.curves[rng.choice(("env/retries", "sampler/timeouts"))] = list(totals)
    return story, Truth(("retry_storm",), at, 25)


@fault
def code_differs(rng: random.Random) -> Made:
    """One rank runs another commit."""
    story = training(rng, world=4)
    rank = rng.randrange(4)
    story.rank_config[rank] = {"git": "fff"}
    return story, Truth(("code_differs",), None, 0, (rank,))


@fault
def clock_skew(rng: random.Random) -> Made:
    """The clock of one machine of four is off."""
    story = training(rng, world=4)
    story.per_host = 1
    rank = rng.randrange(4)
    story.offsets[rank] = rng.choice((-1, 1)) * rng.uniform(5, 400)
    return story, Truth(("clock_skew",), None, 0, (rank,))


@fault
def memory_creep(rng: random.Random) -> Made:
    """Host memory grows each step."""
    story = training(rng, steps=900)
    add_system(story)
    rate = rng.uniform(0.005, 0.02)
    used = story.system["memory/used_bytes"]
    story.system["memory/used_bytes"] = [v * (1 + rate * i) for i, v in enumerate(used)]
    return story, Truth(("memory_creep",), None, 0, None, "memory")


@fault
def gpu_memory_creep(rng: random.Random) -> Made:
    """GPU memory grows each step."""
    story = training(rng, steps=900)
    add_system(story)
    story.system["gpu/0/memory_used_bytes"] = [30e9 * (1 + 0.006 * i) + rng.gauss(0, 1e8) for i in range(121)]
    return story, Truth(("gpu_memory_creep",), None, 0, None, "gpu")


@fault
def disk_filling(rng: random.Random) -> Made:
    """Free disk shrinks towards nothing."""
    story = training(rng, steps=900)
    add_system(story)
    story.system["disk/free_bytes"] = [3e11 - i * rng.uniform(1.8e9, 2.2e9) for i in range(121)]
    return story, Truth(("disk_filling",), None, 0, None, "disk")


@fault
def log_burst(rng: random.Random) -> Made:
    """The same warning again and again."""
    story = training(rng)
    at = _middle(rng, story)
    story.logs = [(at + i // 12, 0, 13, f"sample {i} has no label, skipped") for i in range(60)]
    return story, Truth(("log_burst",), at, 10)


@fault
def new_error(rng: random.Random) -> Made:
    """An error that was never logged before."""
    story = training(rng)
    at = _middle(rng, story)
    story.logs = [(at, 0, 17, "CUDA error: uncorrectable ECC error encountered on device 3")]
    return story, Truth(("new_error",), at, 2)


@fault
def duplicate_steps(rng: random.Random) -> Made:
    """Steps are recorded again without a restart."""
    story = training(rng, spans=False)
    at, back = _middle(rng, story), rng.randrange(10, 40)
    story.relabel = {t: t - back for t in range(at, story.steps)}
    return story, Truth(("duplicate_steps",), at - back, 5)


@fault
def missing_steps(rng: random.Random) -> Made:
    """Many steps are missing."""
    story = training(rng, spans=False)
    at, away = _middle(rng, story), rng.randrange(20, 90)
    story.relabel = {t: t + away for t in range(at, story.steps)}
    return story, Truth(("missing_steps",), at, 3)


@fault
def lost_records(rng: random.Random) -> Made:
    """The recorder drops records."""
    story = training(rng)
    at = _middle(rng, story)
    story.curves["stepscope/dropped/metric/quota"] = [
        float(max(t - at, 0)) if t % 20 == 0 else None for t in range(story.steps)
    ]
    return story, Truth(("lost_records",), at, 40)
