"""Hugging Face's Trainer with its MLflow callback."""

import json
import tempfile

import mlflow
import torch
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments


class Tiny(PreTrainedModel):
    """One weight."""

    config_class = PretrainedConfig

    def __init__(self, config) -> None:
        super().__init__(config)
        self.layer = torch.nn.Linear(1, 1)
        self.post_init()

    def forward(self, x, labels=None):
        """A squared error."""
        return {"loss": ((self.layer(x) - labels) ** 2).mean()}


data = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 8
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, report_to=["mlflow"], logging_steps=1, max_steps=4, run_name="hf", use_cpu=True, save_strategy="no"
    )
    Trainer(Tiny(PretrainedConfig()), arguments, train_dataset=data).train()
mlflow.end_run()
run = mlflow.search_runs(search_all_experiments=True, filter_string="run_name = 'hf'", output_format="list")[0]
losses = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
print(json.dumps({"params": len(run.data.params) > 100, "losses": len(losses), "status": run.info.status}))
