"""The MLflow sink: a tracking server's runs and its traces, served apart, so that neither waits for the other."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from stepscope.model.ports import Sink
from stepscope.sinks.mlflow.target import Target, read_target
from stepscope.sinks.record_filter import SELF_TELEMETRY


class Mlflow(msgspec.Struct, frozen=True, kw_only=True):
    """A tracking server, and which part of it is meant: runs (metrics, params, tags, status) or traces."""

    target: Target
    part: Literal["runs", "traces"] = "runs"

    excluded: ClassVar[tuple[str, ...]] = (*SELF_TELEMETRY, "kind:log")

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Mlflow":
        """Read options and MLflow's variables."""
        return cls(target=read_target(options, env))

    @property
    def parts(self) -> "tuple[Mlflow, ...]":
        """The same server twice, with a cursor for its runs and one for its traces."""
        return (self, Mlflow(target=self.target, part="traces")) if self.target.traces else (self,)

    @property
    def place(self) -> str:
        """The server, the experiment, and which part."""
        target = self.target
        inside = target.experiment or "experiment by project"
        chosen = f" run {target.run_id}" if target.run_id else ""
        return f"{target.uri} {inside}{chosen} {self.part}"

    @property
    def remote(self) -> bool:
        """It is served by the shipper."""
        return True

    @property
    def probes(self) -> tuple[str, ...]:
        """The kinds of record that show whether it works."""
        return ("span",) if self.part == "traces" else ("metric", "event")

    def open(self) -> Sink:
        """Make the sink of the part."""
        if self.part == "traces":
            from stepscope.sinks.mlflow.traces import TracesSink

            return TracesSink(self.target)
        from stepscope.sinks.mlflow.metrics import MetricsSink

        return MetricsSink(self.target)
