"""Lightning with its own MLflow logger, and MLflow's autologging of it."""

import json
import os

import lightning.pytorch as pl
import mlflow
import torch
from lightning.pytorch.loggers import MLFlowLogger


class Line(pl.LightningModule):
    """One weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        """Log a loss."""
        loss = (self.layer(batch[0]) ** 2).mean()
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def train(logger):
    """Two epochs."""
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 1)), batch_size=2)
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    pl.Trainer(max_epochs=2, logger=logger, accelerator="cpu", log_every_n_steps=1, **quiet).fit(Line(), data)


uri = os.environ["MLFLOW_TRACKING_URI"]
logger = MLFlowLogger(experiment_name="lightning", run_name="logged", tracking_uri=uri)
logger.log_hyperparams({"width": 1})
train(logger)
mlflow.set_experiment("autologged")
mlflow.pytorch.autolog(log_models=False)
with mlflow.start_run() as run:
    train(False)
client = mlflow.MlflowClient()
logged, auto = client.get_run(logger.run_id), client.get_run(run.info.run_id)
print(
    json.dumps(
        {
            "logged": [logged.info.status, logged.data.params, sorted(logged.data.metrics)],
            "epochs": len(client.get_metric_history(run.info.run_id, "train_loss")),
            "auto": "optimizer_name" in auto.data.params,
        }
    )
)
