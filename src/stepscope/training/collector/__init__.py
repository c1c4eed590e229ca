"""The metrics of a training service under their published names, recorded into the run."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import stepscope
from stepscope.extend import Refused, number_of, step_number, text_of
from stepscope.model import names
from stepscope.model.records import Instrument
from stepscope.training import inputs, run_start
from stepscope.training.collector.datadog import NAMESPACE, is_enabled, record_event, sink_options
from stepscope.training.inputs import mapping

LONGEST = 10_000
"""Entries that are kept; older ones are dropped."""
FAMILIES = ("training", "rl", "performance", "custom")


class History:
    """The latest entries, oldest first. Each is a dict with `timestamp`, `family`, `step` and the numbers.

    A metric named like one of these three keys is recorded in the run only.
    Values on a device are left out: keeping them would hold device memory, and reading them would wait.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=longest)
        self.taken = 0
        """The number of entries added since the last `clear`."""

    def add(self, family: str, step: int | None, numbers: Mapping[str, Any], now: float | None = None) -> None:
        """Add the numbers of one call."""
        plain = {key: value for key, value in numbers.items() if isinstance(value, (int, float))}
        stamp = time.time() if now is None else now
        self._entries.append({**plain, "timestamp": stamp, "family": family, "step": step})
        self.taken += 1

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self.taken = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(list(self._entries))

    def __getitem__(self, at: int) -> dict[str, Any]:
        return self._entries[at]


Tags = Any
"""`key:value` strings, or a mapping."""


class MetricsCollector:
    """Collects the metrics of one run. No method raises; None values are left out.

    Metrics go to the current run of this process; without one, a run with the id `run_id` is started. After its end,
    calls are counted as rejected, and their numbers are kept in the history only.
    """

    def __init__(self, run_id: str, user_id: str | None = None, enable_datadog: bool = True) -> None:
        self.run_id = text_of(run_id)
        self.user_id = None if user_id is None else text_of(user_id)
        self.enable_datadog = bool(enable_datadog)
        self.metrics_history = History()
        self._loss: Any = None
        self._step: int | None = None
        sinks = {"datadog": sink_options(run_tag=True)} if self.enable_datadog and is_enabled() else {}
        run_start.join_or_start_safely(sinks, {"run_id": self.run_id})
        self._latest = stepscope.current_run()

    def collect_training_metrics(
        self,
        loss: Any,
        grad_norm: Any = None,
        learning_rate: Any = None,
        step: int | None = None,
        extra_metrics: Mapping[str, Any] | None = None,
        tags: Tags = None,
    ) -> None:
        """Record the metrics of one step, and increment the step counter."""
        self._loss = _detached(loss)
        given = {"loss": loss, "grad_norm": grad_norm, "learning_rate": learning_rate}
        run, number = self._collect("training", {**given, **mapping("extra_metrics", extra_metrics)}, step, tags)
        self._record(run, "training", {"step": 1}, tags, inputs.COUNT, number)

    def collect_rl_metrics(
        self,
        step: int | None = None,
        policy_loss: Any = None,
        value_loss: Any = None,
        entropy: Any = None,
        kl_divergence: Any = None,
        clip_fraction: Any = None,
        advantage_mean: Any = None,
        advantage_std: Any = None,
        explained_variance: Any = None,
        reward_mean: Any = None,
        extra_metrics: Mapping[str, Any] | None = None,
        tags: Tags = None,
    ) -> None:
        """Record the metrics of a policy update."""
        given = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl_divergence": kl_divergence,
            "clip_fraction": clip_fraction,
            "advantage_mean": advantage_mean,
            "advantage_std": advantage_std,
            "explained_variance": explained_variance,
            "reward_mean": reward_mean,
        }
        self._collect("rl", {**given, **mapping("extra_metrics", extra_metrics)}, step, tags)

    def collect_performance_metrics(
        self,
        forward_backward_duration_ms: Any = None,
        optim_step_duration_ms: Any = None,
        queue_depth: Any = None,
        gpu_utilization: Any = None,
        gpu_memory_used_gb: Any = None,
        tags: Tags = None,
    ) -> None:
        """Record durations as samples, and the state of queue and GPU."""
        spent = {
            "forward_backward_duration_ms": forward_backward_duration_ms,
            "optim_step_duration_ms": optim_step_duration_ms,
        }
        state = {
            "queue_depth": queue_depth,
            "gpu_utilization": gpu_utilization,
            "gpu_memory_used_gb": gpu_memory_used_gb,
        }
        run = self._run()
        self.metrics_history.add("performance", None, {**spent, **state})
        self._record(run, "performance", state, tags)
        self._record(run, "performance", spent, tags, inputs.MILLISECONDS)

    def collect_custom_metrics(self, metrics: Mapping[str, Any], step: int | None = None, tags: Tags = None) -> None:
        """Record custom numbers under `signal.custom.`."""
        self._collect("custom", mapping("metrics", metrics), step, tags)

    def time_operation(self, operation_name: str, tags: Tags = None) -> "Timing":
        """Time a block, with `with` or `async with`: a span, and a sample of `performance.NAME_duration_ms`.

        The attribute `outcome` says whether the block raised; exceptions propagate.
        """
        return Timing(self, text_of(operation_name), tags)

    def send_event(self, title: str, text: str, alert_type: str = "info", tags: Tags = None) -> None:
        """Record an event with the tags of this collector."""
        run = self._run()
        if run is not None:
            record_event(run, title, text, alert_type, self._attrs(run, tags))

    def get_metrics_summary(self) -> dict[str, Any]:
        """Summarize the collected metrics; keys without a value yet are None."""
        entries = list(self.metrics_history)
        families: dict[str, dict[str, Any]] = {name: {"num_metrics": 0, "last": {}} for name in FAMILIES}
        for entry in entries:
            known = families[entry["family"]]
            known["num_metrics"] += 1
            known["last"].update({key: value for key, value in entry.items() if key != "family"})
        return {
            "num_metrics": self.metrics_history.taken,
            "in_history": len(entries),
            "first_timestamp": entries[0]["timestamp"] if entries else None,
            "last_timestamp": entries[-1]["timestamp"] if entries else None,
            "last_step": self._step,
            "last_loss": _read(self._loss),
            **families,
        }

    def _run(self) -> stepscope.Run | None:
        """The current run; after its end, the call is counted as rejected in the last run."""
        run = stepscope.current_run()
        if run is not None:
            self._latest = run
        elif self._latest is not None:
            self._latest.count("rejected", "call", "after finish")
        return run

    def _collect(
        self, family: str, given: Mapping[str, Any], step: Any, tags: Tags
    ) -> tuple[stepscope.Run | None, int | None]:
        """Record numbers and add them to the history; return the run and the step.

        A step that is not an integer is counted as rejected, and the numbers are recorded without a step.
        """
        run = self._run()
        number = None
        try:
            if step is not None:
                self._step = number = step_number(step)
        except Refused as reason:
            if run is not None:
                run.reject("step", str(reason))
        self.metrics_history.add(family, number, given)
        self._record(run, family, given, tags, step=number)
        return run, number

    def _record(
        self,
        run: stepscope.Run | None,
        family: str,
        given: Mapping[str, Any],
        tags: Tags,
        instrument: Instrument | None = None,
        step: int | None = None,
    ) -> None:
        if run is None:
            return
        attrs = self._attrs(run, tags)
        named = {f"{NAMESPACE}.{family}.{key}": value for key, value in given.items() if value is not None}
        for numbers in [named] if instrument is None else [{key: value} for key, value in named.items()]:
            run.measure(numbers, attrs, instrument, step=step)

    def _attrs(self, run: stepscope.Run, tags: Tags) -> dict[str, Any]:
        """Return the tags of a record; the id of the run itself is left out."""
        attrs: dict[str, Any] = {} if self.run_id == run.id else {"run_id": self.run_id}
        if self.user_id is not None:
            attrs["user_id"] = self.user_id
        return {**attrs, **inputs.attrs_of(tags)}


class Timing:
    """One timed block."""

    def __init__(self, collector: MetricsCollector, name: str, tags: Tags) -> None:
        self._collector, self._name, self._tags = collector, name, tags
        bucket = names.SPAN_BUCKETS.get(name)
        self._span = stepscope.span(name, **({} if bucket is None else {names.ATTR_BUCKET: bucket}))
        self._began = 0
        self.duration_ms: float | None = None
        """The duration of the block, set at its end."""

    def __enter__(self) -> "Timing":
        self._span.__enter__()
        self._began = time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.duration_ms = (time.perf_counter_ns() - self._began) / 1e6
        outcome = "success" if error is None else "error"
        self._span.set_attribute("outcome", outcome)
        self._span.__exit__(kind, error, where)
        key = f"{self._name}_duration_ms"
        collector, tags = self._collector, {**inputs.attrs_of(self._tags), "outcome": outcome}
        collector.metrics_history.add("performance", None, {key: self.duration_ms})
        collector._record(collector._run(), "performance", {key: self.duration_ms}, tags, inputs.MILLISECONDS)

    async def __aenter__(self) -> "Timing":
        return self.__enter__()

    async def __aexit__(self, *raised: Any) -> None:
        self.__exit__(*raised)


def create_metrics_collector(run_id: str, user_id: str | None = None, enable_datadog: bool = True) -> MetricsCollector:
    """Create the collector of a run."""
    return MetricsCollector(run_id, user_id, enable_datadog)


def _detached(value: Any) -> Any:
    """A value detached from its autograd graph, which would stay in memory."""
    try:
        return value.detach() if hasattr(value, "detach") else value
    except Exception:  # counted as rejected when it is recorded
        return None


def _read(value: Any) -> Any:
    """Return the number of a value; waits for a value on a device."""
    try:
        if value is None or isinstance(value, (int, float)):
            return value
        if hasattr(value, "item"):
            return value.item()
        return number_of(value)
    except Exception:  # counted as rejected when it was recorded
        return None
