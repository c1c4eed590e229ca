"""Logfire with sending and console off, spans going to a batch processor that throws them away."""

from __future__ import annotations

from pathlib import Path

import logfire
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from benchmarks.subjects import Subject
from benchmarks.subjects.otel_sdk import NullSpans


def open_sdk(folder: Path) -> Subject:
    """Configure logfire locally; a dict of metrics is one `logfire.info` with attributes."""
    logfire.configure(
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        data_dir=folder,
        additional_span_processors=[BatchSpanProcessor(NullSpans())],
    )

    def log(metrics: dict[str, float], step: int) -> None:
        logfire.info("step", step=step, **metrics)

    def span() -> None:
        with logfire.span("forward_backward", batch_size=32, tokens=4096, lr=3e-4, phase="train", cached=True):
            pass

    return Subject(log=log, span=span, close=logfire.shutdown)
