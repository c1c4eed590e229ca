"""What `instrument()` adds to a step of a small model, in processor time of the loop's own thread."""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import torch

import stepscope
from stepscope.integrations.torch import instrument, uninstrument

STEPS = 400
WARM_UP_SECONDS = 0.25
"""Of the hooks: before that every step is timed, so that a short run is complete."""


def loop(width: int, device: str) -> Callable[[stepscope.Run | None], float]:
    """Make a training loop; calling it returns the seconds of processor time of a step."""
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    inputs = torch.rand(64, width, device=device)

    def steps(run: stepscope.Run | None) -> float:
        began = time.thread_time()
        for step in range(STEPS):
            if run is not None:
                with run.step(step):
                    one()
            else:
                one()
        return (time.thread_time() - began) / STEPS

    def one() -> None:
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()

    return steps


def main() -> None:
    """Measure by turns, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        run = stepscope.init(home=home, probes=False, otel=False, quiet=True)
        steps = loop(args.width, args.device)
        steps(None)
        plain, timed, spans = [], [], []
        for _ in range(args.rounds):
            plain.append(steps(None))
            spans.append(steps(run))
            instrument()
            began = run.overhead.seconds("hooks")
            while run.overhead.seconds("hooks") - began < WARM_UP_SECONDS:
                steps(run)
            timed.append(steps(run))
            uninstrument()
        run.finish()
    base, stepped, full = (statistics.median(each) * 1e6 for each in (plain, spans, timed))
    print(
        f"a step takes {base:.1f} us; with run.step {stepped - base:+.1f} us; with instrument() {full - base:+.1f} us"
    )
    print(f"instrument() adds {100 * (full - stepped) / base:.2f} %")


if __name__ == "__main__":
    main()
