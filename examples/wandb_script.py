"""A script written for wandb: only its import was changed."""

import random

import stepscope.compat.wandb as wandb


def main(steps: int = 5) -> None:
    """Pretend to train."""
    wandb.init(project="examples", name="wandb", config={"lr": 0.1, "epochs": 1}, tags=["demo"])
    wandb.define_metric("val/*", step_metric="epoch")
    for step in range(steps):
        wandb.log({"train/loss": wandb.config.lr / (step + 1), "train/noise": random.random()})
    wandb.log({"epoch": 1, "val/loss": 0.5})
    wandb.finish()


if __name__ == "__main__":
    main()
