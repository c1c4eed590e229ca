"""Who is measured: stepscope, its peers, and a plain file as the yardstick."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPAN_NAME = "forward_backward"
SPAN_ATTRS: dict[str, Any] = {"batch_size": 32, "tokens": 4096, "lr": 3e-4, "phase": "train", "cached": True}
YARDSTICK = "json + write"


@dataclass(frozen=True, slots=True)
class Subject:
    """An SDK opened on a local folder: `log(metrics, step=n)`, `span()` for one span with five attributes."""

    log: Callable[..., object] | None
    span: Callable[[], object] | None
    close: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a subject's opener lives, and the lines a user writes to import and to start it."""

    opener: str
    package: str
    importing: str
    starting: str = ""
    peer: bool = True


_OTEL = "from opentelemetry import trace, metrics; from opentelemetry.sdk import trace as t, metrics as m"
SUBJECTS: dict[str, Entry] = {
    "stepscope": Entry(
        "stepscope_sdk:open_run",
        "stepscope",
        "import stepscope",
        "stepscope.init(project='bench', name='import', home=FOLDER, probes=False)",
        peer=False,
    ),
    YARDSTICK: Entry("plain_file:open_file", "", "import json", "open(FOLDER + '/log.jsonl', 'a')", peer=False),
    "trackio": Entry(
        "trackio_sdk:open_run",
        "trackio",
        "import trackio",
        "trackio.init(project='bench', name='import', embed=False, auto_log_cpu=False, auto_log_gpu=False)",
    ),
    "wandb": Entry(
        "wandb_sdk:open_run",
        "wandb",
        "import wandb",
        "wandb.init(project='bench', mode='offline', dir=FOLDER)",
    ),
    "mlflow": Entry(
        "mlflow_sdk:open_sync",
        "mlflow",
        "import mlflow",
        "mlflow.set_tracking_uri('sqlite:///' + FOLDER + '/m.db'); mlflow.start_run()",
    ),
    "mlflow async": Entry("mlflow_sdk:open_async", "mlflow", ""),
    "tensorboardX": Entry(
        "tensorboardx_sdk:open_writer",
        "tensorboardX",
        "import tensorboardX",
        "tensorboardX.SummaryWriter(FOLDER + '/tb')",
    ),
    "otel": Entry("otel_sdk:open_sdk", "opentelemetry-sdk", _OTEL, "t.TracerProvider(); m.MeterProvider()"),
    "logfire": Entry(
        "logfire_sdk:open_sdk",
        "logfire",
        "import logfire",
        "logfire.configure(send_to_logfire=False, console=False)",
    ),
    "datadog": Entry(
        "datadog_sdk:open_plain", "datadog", "import datadog", "datadog.initialize(statsd_host='127.0.0.1')"
    ),
    "datadog buffered": Entry("datadog_sdk:open_buffered", "datadog", ""),
}
PEERS = tuple(name for name, entry in SUBJECTS.items() if entry.peer)


def open_subject(name: str, folder: str) -> Subject:
    """Import the SDK called `name` and start it on `folder`."""
    module, function = SUBJECTS[name].opener.split(":")
    opener = getattr(importlib.import_module(f"benchmarks.subjects.{module}"), function)
    return opener(Path(folder))  # type: ignore[no-any-return]
