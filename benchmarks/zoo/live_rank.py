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
    step, longest = 0, 0.0
    while True:
        here = rank == AT and step >= FAULT_STEP
        with run.step(step):
            began = time.perf_counter()
            with run.span("data_load"):
                # Far longer than what a busy machine did to it before.
                stalls = here and fault == "stall" and step == FAULT_STEP
                time.sleep(max(6.0, 8 * longest) if stalls else STEP_SECONDS / 4)
                while here and fault == "hang":
                    _report("fault")
                    time.sleep(3600)
            longest = max(longest, time.perf_counter() - began)
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
