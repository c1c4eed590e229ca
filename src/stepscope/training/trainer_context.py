"""The dual pipeline of an RL trainer: one config starts it, and each event becomes both metrics and trace events."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from opentelemetry import trace

import stepscope
from stepscope.extend import NO_SPAN, detect_launch, level_of, text_of
from stepscope.training import run_start, trainer_config, trainer_fields
from stepscope.training.trainer_config import find
from stepscope.training.trainer_fields import Category, MetricRegistry, known


@dataclass(frozen=True, slots=True)
class DistInfo:
    """Rank and world size, read from the launcher's environment variables."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    launcher: str = "none"

    @classmethod
    def resolve(cls, env: Mapping[str, str] | None = None) -> "DistInfo":
        """Read the launcher's variables; without a launcher the process is rank 0 of 1."""
        found = detect_launch(env)
        return cls(found.rank, found.local_rank, found.world_size, found.launcher)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0


EVALUATOR_KEYS = (
    "episodes",
    "mean_return",
    "max_return",
    "min_return",
    "episode_length_mean",
    "episode_length_max",
    "episode_length_min",
    "duration_ms",
)


def summarize(returns: Iterable[float], lengths: Iterable[int], duration_ms: float) -> dict[str, float]:
    """Summarize episodes under the eight keys; without episodes the values are NaN."""
    totals, sizes = [float(each) for each in returns], [float(each) for each in lengths]
    return {
        "episodes": len(totals),
        "mean_return": _mean(totals),
        "max_return": max(totals, default=math.nan),
        "min_return": min(totals, default=math.nan),
        "episode_length_mean": _mean(sizes),
        "episode_length_max": max(sizes, default=math.nan),
        "episode_length_min": min(sizes, default=math.nan),
        "duration_ms": duration_ms,
    }


def missing(fields: Mapping[str, Any]) -> list[str]:
    """Name the expected keys that an evaluation lacks."""
    return [key for key in EVALUATOR_KEYS if key not in fields]


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


_NO_METRICS = frozenset(("startup", "config_trace"))
"""Event messages whose numbers are settings, not measurements."""


class TrainingContext:
    """The telemetry of a trainer. No method raises; calls after the end of the run are counted as rejected.

    Only a context that started the run (`owns_run`) ends it.
    """

    def __init__(self, run: stepscope.Run, dist: DistInfo, registry: MetricRegistry, *, owns_run: bool = False) -> None:
        self.run = run
        self.dist = dist
        self.registry = registry
        self._owns_run = owns_run
        self._live = run.status != "disabled"

    @classmethod
    def initialize(
        cls,
        config: Any = None,
        dist: DistInfo | None = None,
        *,
        algorithm: str | None = None,
        registry: MetricRegistry | None = None,
        console: bool = False,
        **settings: Any,
    ) -> "TrainingContext":
        """Start from one config, a mapping or object that may be nested; ConfigError when it is invalid.

        `otlp_endpoint` is the MLflow server for metrics and traces; without it everything stays local. Further
        arguments are those of `stepscope.init`. A current run is joined, and continues after `finish`.
        """
        given = trainer_config.read(config)
        dist = dist or DistInfo.resolve()
        registry = registry or MetricRegistry()
        registry.configure(trainer_config.labels(given))
        service = str(algorithm or find(given, "algorithm") or settings.get("service_name") or "training")
        named = {key: found for key in ("project", "home") if (found := find(given, key)) is not None}
        level = find(given, "log_level")
        if level_of(level) is not None:
            named["log_level"] = level
        usual = {"name": find(given, "run_name") or f"{service}.pid-{os.getpid()}", "service_name": service, **named}
        sinks = _sinks(given, registry, console and dist.is_main)
        owns_run = stepscope.current_run() is None
        run = run_start.join_or_start(sinks, {"config": given, **usual, **settings})
        if level is not None and "log_level" not in named:  # perhaps a level of the trainer's own logger
            run.warn(f"log_level {text_of(level)[:100]!r} is not a known level, and is ignored")
        return cls(run, dist, registry, owns_run=owns_run)

    def emit(
        self, category: Any = None, given: Mapping[str, Any] | None = None, /, message: str = "", **more: Any
    ) -> None:
        """Record one event: its numbers as metrics at its step, and all its fields on the current span.

        The category may also be the field `category` or `telemetry`, and the message the field `message`; an unknown
        category is MISC. Without a step field the step of `run.step` is used; without either no metric is recorded.
        An event with a message, or with neither a span nor a metric, is also recorded as an event of the run.
        """
        if not self._is_open():
            return
        try:
            self._emit(category, {**(given or {}), **more}, message)
        except Exception as error:
            self.run.reject("emit", type(error).__name__)

    def _emit(self, word: Any, given: dict[str, Any], message: Any) -> None:
        if not message and isinstance(given.get("message"), str):
            message = given.pop("message")
        message = text_of(message)
        alias = given.pop("telemetry", None)
        default = given.pop("category", alias)
        category = self._category(default if word is None else word)
        logged = message not in _NO_METRICS and self._log(category, given)
        span = trace.get_current_span()
        on_span = span.is_recording()
        if on_span:
            span.add_event(message or category.name, {"category": category.name, **given})
        if message or not (logged or on_span):
            self.run.event(message or category.name, {"category": category.name, **given})

    def _category(self, word: Any) -> Category:
        found = known(word)
        if found is None and word is not None:
            self.run.count("unknown", "category", "misc")
            text = text_of(word)[:100]
            self.run.warn(f"unknown category {text!r}: recorded under misc/")
        return found or Category.MISC

    def _log(self, category: Category, given: Mapping[str, Any]) -> bool:
        """Record the numbers of an event; False when there are none, or no step."""
        found = trainer_fields.sort(given)
        if not found.numbers:
            return False
        if category is Category.EVALUATOR and (lacks := missing(given)):
            self.run.warn(f"the evaluation lacks {', '.join(lacks)}")
        if found.step is not None:
            axis = None if found.axis == "step" else found.axis
            self.run.log(found.numbers, found.step, category.value, axis=axis)
        elif self.run.mark.step is not None:
            self.run.log(found.numbers, category=category.value)
        else:
            self.run.count("rejected", "metrics", "no step")
            expected = ", ".join(trainer_fields.STEP_FIELDS)
            self.run.warn(f"{category.name} event without a step: add one of {expected}")
            return False
        return True

    def evaluation(
        self, returns: Iterable[float], lengths: Iterable[int], *, duration_ms: float, **more: Any
    ) -> dict[str, float]:
        """Record evaluated episodes under the keys that all algorithms share, and return the values."""
        try:
            found = summarize(returns, lengths, duration_ms)
        except Exception as error:
            if self._is_open():
                self.run.reject("evaluation", type(error).__name__)
            return {}
        self.emit(Category.EVALUATOR, found, **more)
        return found

    def line(self, category: Any, numbers: Any) -> str:
        """The numbers of an event as text, with their labels; see `MetricRegistry.line`."""
        return self.registry.line(category, numbers if isinstance(numbers, Mapping) else {})

    def step(self, n: int, name: str = "step") -> stepscope.Span:
        """Open the root span of a step; see `Run.step`."""
        return self.run.step(n, name) if self._is_open() else NO_SPAN

    def span(self, name: str, /, **attrs: Any) -> stepscope.Span:
        """Open a span; see `Run.span`."""
        return self.run.span(name, **attrs) if self._is_open() else NO_SPAN

    def finish(self, status: str = "finished", *, timeout: float | None = None, wait: float = 0.0) -> None:
        """End the run, or flush one that was joined; a second call does nothing."""
        if self._live:
            self._live = False
            if self._owns_run:
                self.run.finish(status, timeout=timeout, wait=wait)
            else:
                self.run.flush(timeout)

    def _is_open(self) -> bool:
        is_open = self._live and stepscope.current_run() is self.run
        if not is_open and self.run.status != "disabled":
            self.run.count("rejected", "call", "after finish")
        return is_open

    def __enter__(self) -> "TrainingContext":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._live and self._owns_run:
            self._live = False
            self.run.__exit__(kind, error, where)
        elif self._live:
            if isinstance(error, Exception):
                self.run.exception(error)
            self.finish()


def _sinks(given: Mapping[str, Any], registry: MetricRegistry, console: bool) -> dict[str, dict[str, Any]]:
    sinks: dict[str, dict[str, Any]] = {}
    endpoint = find(given, "otlp_endpoint")
    if endpoint:
        named = find(given, "mlflow_experiment")
        options = {
            "uri": endpoint,
            "experiment": named,
            "experiment_id": find(given, "mlflow_experiment_id") if named is None else None,
            "run_id": find(given, "mlflow_run_id"),
        }
        sinks["mlflow"] = {key: str(value) for key, value in options.items() if value is not None}
    if console:
        sinks["console"] = {"labels": registry.labels}
    return sinks
