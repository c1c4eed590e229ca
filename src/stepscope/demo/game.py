"""The demo's run of reinforcement learning: `python -m stepscope.demo.game JOB`, where JOB is JSON."""

import logging
import sys
import time

import msgspec
import numpy as np

import stepscope
from stepscope.demo import demo_plan
from stepscope.demo.ppo import Learner
from stepscope.demo.rank import IDLE, OVERHEAD, PRODUCTIVE, print_progress

log = logging.getLogger("demo.game")
WRONG_RATE = 400
"""The learning rate is so many times too high, once."""
EVALUATE_EVERY = 10


class GameJob(msgspec.Struct, frozen=True):
    """The arguments of the process."""

    home: str
    run: str
    iterations: int


def play(run: stepscope.Run, game: demo_plan.GamePlan) -> None:
    """Train for all iterations."""
    learner = Learner(game.config)
    lengths: list[int] = [0]
    for iteration in range(game.iterations):
        with run.step(iteration):
            lengths = _iterate(run, learner, game, iteration) or lengths
            if iteration % EVALUATE_EVERY == EVALUATE_EVERY - 1:
                _evaluate(run, learner)
        print_progress(iteration + 1, float(np.mean(lengths)))


def _iterate(run: stepscope.Run, learner: Learner, game: demo_plan.GamePlan, iteration: int) -> list[int]:
    config = game.config
    rate = config["lr"]
    if iteration == game.blow_up:
        rate *= WRONG_RATE
        log.warning("learning rate %g", rate)
    began = time.perf_counter()
    with run.span("rl.sample", environments=config["environments"], **PRODUCTIVE):
        played = learner.sample()
    seconds = time.perf_counter() - began
    with run.span("rl.reward", **PRODUCTIVE):
        sample = learner.estimate(played)
    with run.span("rl.train", **PRODUCTIVE):
        seen = learner.train(sample, rate)
    with run.span("rl.sync", **IDLE):
        lengths, learner.carts.lengths = learner.carts.lengths, []
    run.log({**seen, "lr": rate, "explained_variance": sample.explained}, category="trainer")
    run.log({"samples_per_second": len(sample.pushes) / seconds}, category="actor")
    if lengths:
        run.log(
            {"reward_mean": np.mean(lengths), "reward_max": max(lengths), "episodes": len(lengths)}, category="actor"
        )
    if seen["kl"] > 4 * config["target_kl"]:
        run.alert("KL", "WARN", f"KL {seen['kl']:.3g}, target {config['target_kl']}", kl=seen["kl"])
    return lengths


def _evaluate(run: stepscope.Run, learner: Learner) -> None:
    with run.span("train.evaluate", **OVERHEAD):
        before, learner.carts.lengths = learner.carts.lengths, []
        learner.sample()
        lengths, learner.carts.lengths = learner.carts.lengths, before
    if lengths:
        run.log({"reward_mean": np.mean(lengths)}, category="evaluator")
        log.info("evaluation: mean episode %.1f of 500", np.mean(lengths))


def main(text: str) -> int:
    """Do one job."""
    job = msgspec.json.decode(text, type=GameJob)
    logging.getLogger("demo").setLevel(logging.INFO)
    game = demo_plan.GamePlan(job.iterations)
    run = stepscope.init(
        project="demo", name="cart-pole", config=game.config, run_id=job.run, home=job.home, probe_interval=1.0
    )
    with run:
        play(run, game)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
