"""CUDA graphs: logging neither disturbs a capture nor records a value that a replay has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu_values import ROUNDS

Fact = tuple[str, bool]
WAITING = "waiting at capture"


def _capture(inputs: Any, inside: Callable[[Any], None]) -> tuple[Any, Any]:
    """Capture `inputs * 2` in torch's default mode, which forbids other threads most of CUDA meanwhile."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = inputs * 2.0
        inside(output)
    return graph, output


def _works(inputs: Any, inside: Callable[[Any], None]) -> tuple[bool, str]:
    """Tell whether capturing with `inside` going on gives a graph that computes."""
    try:
        graph, output = _capture(inputs, inside)
        inputs.fill_(21.0)
        graph.replay()
        return output.item() == 42.0, ""
    except Exception as error:
        torch.cuda.synchronize()
        return False, f" ({type(error).__name__}: {str(error).splitlines()[0][:120]})"


def facts(run: Any, busy: Callable[[], None]) -> list[Fact]:
    """Capture graphs while the SDK has tensors to read, and while it is called."""
    inputs = torch.ones((), device="cuda")
    _works(inputs, lambda output: None)
    found: list[Fact] = []
    for step in range(ROUNDS):
        if step % 20 == 0:
            busy()
        run.log({f"{WAITING}/value": torch.zeros((), device="cuda") + step, f"{WAITING}/expect": step}, step=step)
    ok, why = _works(inputs, lambda output: time.sleep(1.0))
    found.append((f"a graph is captured while logged tensors wait to be read{why}", ok))

    def log_inside(output: Any) -> None:
        for step in range(5):
            run.log({"inside capture": output, "inside capture too": output + 1.0}, step=step)
            time.sleep(0.2)

    ok, why = _works(inputs, log_inside)
    found.append((f"a graph is captured with `log` called inside{why}", ok))
    ok, why = _works(inputs, lambda output: None)
    found.append((f"the next capture works{why}", ok))
    return found


def log_replays(run: Any) -> list[str]:
    """Log the static outputs of replayed graphs, which change without torch noticing; return the keys."""
    inputs = torch.zeros((), device="cuda")
    graphs = [_capture(inputs, lambda output: None) for _ in range(2)]
    keys = ["changed by CUDA graph replay", "changed by CUDA graph replay, two in turn"]
    for key, count in zip(keys, (1, 2), strict=True):
        for step in range(1, ROUNDS + 1):
            graph, output = graphs[step % count]
            inputs.fill_(step / 2)
            graph.replay()
            run.log({f"{key}/value": output, f"{key}/expect": step}, step=step)
    return keys


def check_inside(values: dict[str, dict[int, Any]]) -> Fact:
    """A tensor logged inside a capture has no value yet: none may be in the journal."""
    return "nothing logged inside a capture is in the journal", not values.get("inside capture")
