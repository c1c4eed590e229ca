"""Two trials of Ray Tune, recorded by one callback."""

from typing import Any

from ray import tune

from stepscope.integrations.ray_train import StepscopeTuneCallback


def objective(config: dict[str, Any]) -> None:
    """Pretend to train."""
    for step in range(3):
        tune.report({"loss": config["lr"] * (3 - step)})


def main(storage: str | None = None) -> None:
    """Try two learning rates."""
    recording = StepscopeTuneCallback(project="examples", name="tune")
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        param_space={"lr": tune.grid_search([0.1, 0.2])},
        run_config=tune.RunConfig(callbacks=[recording], verbose=0, storage_path=storage),
    )
    tuner.fit()


if __name__ == "__main__":
    main()
