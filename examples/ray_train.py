"""A function trained by Ray Train on two workers, recorded by one callback."""

import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import stepscope
from stepscope.integrations.ray_train import StepscopeTrainCallback


def train() -> None:
    """Pretend to train."""
    rank = ray.train.get_context().get_world_rank()
    for step in range(3):
        ray.train.report({"loss": 1.0 / (step + 1) + rank, "step": step})


def main(storage: str | None = None) -> None:
    """Train on two workers."""
    with stepscope.init(project="examples", name="ray-train"):
        trainer = DataParallelTrainer(
            train,
            scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
            run_config=ray.train.RunConfig(callbacks=[StepscopeTrainCallback()], storage_path=storage),
        )
        trainer.fit()


if __name__ == "__main__":
    main()
