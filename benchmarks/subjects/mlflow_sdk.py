"""MLflow on a local SQLite file, logging synchronously or through its own queue."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import mlflow

from benchmarks.subjects import SPAN_ATTRS, SPAN_NAME, Subject


def open_sync(folder: Path) -> Subject:
    """Start a run whose `log_metrics` returns when the database has the row."""
    _start(folder)
    return Subject(log=mlflow.log_metrics, span=_span, close=mlflow.end_run)


def open_async(folder: Path) -> Subject:
    """Start a run whose `log_metrics` returns when the values are queued."""
    _start(folder)
    log = partial(mlflow.log_metrics, synchronous=False)
    return Subject(log=log, span=None, close=mlflow.flush_async_logging)


def _start(folder: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("bench", artifact_location=str(folder / "artifacts"))
    mlflow.set_experiment("bench")
    mlflow.start_run()


def _span() -> None:
    with mlflow.start_span(SPAN_NAME, attributes=SPAN_ATTRS):
        pass
