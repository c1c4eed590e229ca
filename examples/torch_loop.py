"""A plain PyTorch loop whose data loading, forward, backward and optimizer steps time themselves."""

import torch

import stepscope
from stepscope.integrations.torch import instrument, profile


def main(steps: int = 20) -> None:
    """Train a small network on random data."""
    with stepscope.init(project="examples", name="torch") as run:
        instrument()
        profile(steps=range(5, 8))
        net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        data = torch.randn(steps * 16, 8)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, data.sum(1)), batch_size=16)
        batches = iter(loader)
        for step in range(steps):
            with run.step(step):
                inputs, wanted = next(batches)
                loss = (net(inputs).squeeze(1) - wanted).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                run.log({"loss": loss}, category="trainer")


if __name__ == "__main__":
    main()
