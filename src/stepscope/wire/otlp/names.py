"""Signals, encodings and paths of OTLP, and the attributes in which its clients carry run, rank and step."""

from typing import Literal

from stepscope.model.names import ATTR_RUN_ID, STEP_ALIASES

Signal = Literal["traces", "metrics", "logs"]
Encoding = Literal["protobuf", "json"]

SIGNALS: tuple[Signal, ...] = ("traces", "metrics", "logs")

HTTP_PATHS: dict[str, Signal] = {f"/v1/{signal}": signal for signal in SIGNALS}

GRPC_METHODS: dict[Signal, str] = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}

CONTENT_TYPES: dict[Encoding, str] = {"protobuf": "application/x-protobuf", "json": "application/json"}

RUN_ALIASES = (
    ATTR_RUN_ID,
    "rl.run.id",
    "nemo.run.id",
    "tuft.training_run_id",
    "tuft.model_id",
    "tuft.lora_id",
    "mlflow.run_id",
    "wandb.run_id",
)
"""Attributes of a record or a resource that name the run, in order of precedence; TuFT has three for one id."""

RESOURCE_RUN_ALIASES = (*RUN_ALIASES, "run.id", "run_id", "slurm.job.id")
"""On a resource these name the run too; on a record `run_id` may be one call of an agent."""

HEADER_RUN = "x-mlflow-run-id"
HEADER_EXPERIMENT = "x-mlflow-experiment-id"
ATTR_EXPERIMENT = "mlflow.experiment_id"
"""The resource attribute that holds the experiment header; only the hub knows its name."""

STEPS = STEP_ALIASES
"""Attributes that carry the step, in order of precedence."""

PLAIN_STEPS = frozenset({"train.step", "step"})
"""Steps whose axis has no name of its own."""

ATTR_STEP_NAME = "train.step.name"
"""The axis, beside `train.step`, when it has a name."""

ATTR_RUN_NAME = "train.run.name"
ATTR_PROJECT = "train.experiment.name"
ATTR_ATTEMPT = "train.job.attempt"

EVENT_ALERT = "alert.firing"
ATTR_ALERT = "alert.rule.name"
