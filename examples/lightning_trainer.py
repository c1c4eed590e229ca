"""A Lightning module, recorded by a logger and a callback."""

from typing import Any

import lightning
import torch

from stepscope.integrations.lightning import StepscopeCallback, StepscopeLogger


class Line(lightning.LightningModule):
    """Learns the sum of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"lr": 0.1})
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        """The loss of a batch."""
        (inputs,) = batch
        loss = (self.layer(inputs).squeeze(1) - inputs.sum(1)).square().mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        """The loss of a batch that is not learned from."""
        (inputs,) = batch
        self.log("val_loss", (self.layer(inputs).squeeze(1) - inputs.sum(1)).square().mean())

    def configure_optimizers(self) -> Any:
        """Plain gradient descent."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(steps: int = 4, module: lightning.LightningModule | None = None) -> None:
    """Train for one epoch."""
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(steps * 2, 4)), batch_size=2)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", log_every_n_steps=1, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
        logger=StepscopeLogger(project="examples", name="lightning"), callbacks=[StepscopeCallback()],
    )  # fmt: skip
    trainer.fit(module or Line(), loader, loader)


if __name__ == "__main__":
    main()
