"""One rank of a small run in which something goes wrong: it reports each step to its parent and waits for its word."""

import sys
import time

import stepscope

STEP_SECONDS = 0.04
FAULT_STEP = 60
FAULTS = ("nan", "spike", "stall", "straggler", "killed", "hang")
AT = 1
"""The rank at which it goes wrong."""


def main(fault: str, rank: int) -> None:
    """Train until the parent says no more."""
    run = stepscope.init(project="zoo", name=fault)
    step = 0
    while True:
        here = rank == AT and step >= FAULT_STEP
        with run.step(step):
            with run.span("data_load"):
                time.sleep(1.0 if here and fault == "stall" and step == FAULT_STEP else STEP_SECONDS / 4)
                while here and fault == "hang":
                    _report("fault")
                    time.sleep(3600)
            with run.span("forward"):
                time.sleep(STEP_SECONDS * (1.5 if here and fault == "straggler" else 0.5))
            run.log({"loss": _loss(fault, step, here), "lr": 1e-3})
            if here and step == FAULT_STEP:
                _report("fault")
            with run.span("all_reduce"):
                _report(str(step))
                if sys.stdin.readline().strip() != "go":
                    break
        step += 1
    run.finish()


def _loss(fault: str, step: int, here: bool) -> float:
    value = 2.0 / (1 + step / 50) * (1 + 0.02 * ((step * 7919) % 13 - 6) / 6)
    if not here or step != FAULT_STEP:
        return value
    return {"nan": float("nan"), "spike": 40.0 * value}.get(fault, value)


def _report(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
