"""A loop with Hugging Face Accelerate whose `accelerator.log` is recorded."""

import torch
from accelerate import Accelerator

from stepscope.integrations.accelerate import StepscopeTracker


def main(steps: int = 4) -> None:
    """Train a line."""
    accelerator = Accelerator(cpu=True, log_with=StepscopeTracker(project="examples", name="accelerate"))
    accelerator.init_trackers("examples", config={"lr": 0.1})
    net = torch.nn.Linear(4, 1)
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for step in range(steps):
        loss = net(torch.ones(2, 4)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"train_loss": loss, "eval_error": abs(loss)}, step=step)
    accelerator.end_training()


if __name__ == "__main__":
    main()
