"""DatadogMetrics: the API of a DogStatsD client, recorded in the run and delivered by the Datadog sink."""

import functools
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import stepscope
from stepscope.extend import number_of, setting, text_of, wrap
from stepscope.model import names
from stepscope.model.records import Instrument
from stepscope.training import inputs, run_start
from stepscope.wire import foreign_names

NAMESPACE = "signal"
ENABLED = "DATADOG_ENABLED"
_SEVERITIES = {"error": "ERROR", "warning": "WARN", "info": "INFO", "success": "INFO"}
_STATUSES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_CHECKS = {"OK": "INFO", "WARNING": "WARN", "CRITICAL": "ERROR", "UNKNOWN": "WARN"}


def is_enabled(env: Mapping[str, str] | None = None) -> bool:
    """Return whether the environment enables Datadog."""
    found = (os.environ if env is None else env).get(ENABLED, "")
    return found.strip().lower() in ("true", "1", "yes", "on")


def sink_options(**given: Any) -> dict[str, Any]:
    """Options of the Datadog sink: the given ones and the namespace."""
    options = {key: value for key, value in given.items() if value is not None}
    return {"namespace": NAMESPACE, **options}


class DatadogMetrics:
    """A Datadog client. No method raises; what cannot be recorded is counted in the run.

    `enabled=True`, or DATADOG_ENABLED=true, starts a run that delivers to Datadog; a current run keeps its own
    sinks. `enabled=False` records nothing. `app_key` is ignored: only reading needs one.
    """

    def __init__(
        self,
        enabled: bool | None = None,
        api_key: str | None = None,
        app_key: str | None = None,
        host: str | None = None,
        port: int | None = None,
        namespace: str = NAMESPACE,
        constant_tags: Sequence[str] | None = None,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.enabled = is_enabled() if enabled is None else bool(enabled)
        self.namespace = text_of(namespace or "").strip(".")
        self.constant_tags = inputs.attrs_of(constant_tags)
        self._silent = enabled is False
        self._chance = chance
        if self.enabled:
            options = sink_options(api_key=api_key, host=host, port=port)
            run_start.join_or_start_safely({"datadog": {**options, "namespace": self.namespace}}, {})

    def gauge(self, metric: str, value: Any, tags: Any = None, sample_rate: float = 1.0) -> None:
        """Record the current value."""
        self._put(metric, value, tags, sample_rate, inputs.GAUGE)

    def histogram(self, metric: str, value: Any, tags: Any = None, sample_rate: float = 1.0) -> None:
        """Record a sample; the Agent computes percentiles per host."""
        self._put(metric, value, tags, sample_rate, inputs.HISTOGRAM)

    def distribution(self, metric: str, value: Any, tags: Any = None, sample_rate: float = 1.0) -> None:
        """Record a sample; Datadog computes percentiles over all hosts."""
        self._put(metric, value, tags, sample_rate, inputs.DISTRIBUTION)

    def timing(self, metric: str, value: Any, tags: Any = None, sample_rate: float = 1.0) -> None:
        """Record a duration in milliseconds."""
        self._put(metric, value, tags, sample_rate, inputs.TIMING)

    def increment(self, metric: str, value: Any = 1, tags: Any = None, sample_rate: float = 1.0) -> None:
        """Increment a counter."""
        self._put(metric, value, tags, sample_rate, inputs.CHANGE)

    def decrement(self, metric: str, value: Any = 1, tags: Any = None, sample_rate: float = 1.0) -> None:
        """Decrement a counter."""
        self._put(metric, _negative(value), tags, sample_rate, inputs.CHANGE)

    def set(self, metric: str, value: Any, tags: Any = None, sample_rate: float = 1.0) -> None:
        """Record an item of a set; Datadog counts the distinct items."""
        self._put(metric, 1, tags, sample_rate, inputs.SET, {names.ATTR_SET_MEMBER: text_of(value)})

    set_metric = set

    def timed(self, metric: str, tags: Any = None, sample_rate: float = 1.0) -> "Timed":
        """Time a block or, as a decorator, each call of a function, coroutine or generator; milliseconds."""
        return Timed(self, metric, tags, sample_rate)

    def event(self, title: str, text: str, alert_type: str = "info", tags: Any = None) -> None:
        """Record an event; `alert_type` is error, warning, info or success."""
        run = self._run()
        if run is not None:
            record_event(run, title, text, alert_type, {**self.constant_tags, **inputs.attrs_of(tags)})

    def service_check(self, check_name: str, status: Any, tags: Any = None, message: str | None = None) -> None:
        """Record the status of a service: OK, WARNING, CRITICAL or UNKNOWN (0 to 3); anything else is UNKNOWN."""
        run = self._run()
        if run is None:
            return
        word = _status(status)
        attrs = {**self.constant_tags, **inputs.attrs_of(tags), foreign_names.ATTR_CHECK_STATUS: word}
        attrs[foreign_names.ATTR_CHECK_MESSAGE] = "" if message is None else text_of(message)
        run.event(check_name, attrs, _CHECKS[word])

    def _run(self) -> stepscope.Run | None:
        return None if self._silent else stepscope.current_run()

    def _put(
        self,
        metric: Any,
        value: Any,
        tags: Any,
        rate: Any,
        instrument: Instrument | None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        run = self._run()
        if run is None:
            return
        if not isinstance(metric, str) or not metric:
            run.reject("metric", f"the name must be a non-empty str, got {type(metric).__name__}")
            return
        share = _sample_rate(rate)
        if share is None:
            run.count("rejected", "sample_rate", type(rate).__name__)
            share = 1.0
        if share < 1 and self._chance() >= share:
            return
        attrs = {**self.constant_tags, **inputs.attrs_of(tags), **(more or {})}
        if share < 1:
            attrs[names.ATTR_SAMPLE_RATE] = share
        if _has_other_namespace(run, self.namespace):
            attrs[foreign_names.ATTR_NAMESPACE] = self.namespace
        run.measure({self._name(metric): value}, attrs, instrument)

    def _name(self, metric: str) -> str:
        """The metric's name with the namespace as prefix, added once."""
        space = self.namespace
        return metric if not space or metric == space or metric.startswith(f"{space}.") else f"{space}.{metric}"


class Timed:
    """Times blocks and functions; each use records a sample."""

    def __init__(self, client: DatadogMetrics, metric: str, tags: Any, rate: float) -> None:
        self._given = client, metric, tags, rate
        self._began = 0

    def __enter__(self) -> "Timed":
        self._began = time.perf_counter_ns()
        return self

    def __exit__(self, *raised: Any) -> None:
        client, metric, tags, rate = self._given
        client.timing(metric, (time.perf_counter_ns() - self._began) / 1e6, tags, rate)

    def __call__(self, function: Callable[..., Any]) -> Any:
        return wrap(function, lambda *args: Timed(*self._given))


def record_event(run: stepscope.Run, title: Any, text: Any, alert_type: Any, attrs: Mapping[str, Any]) -> None:
    """Record a Datadog event; an unknown alert type is info."""
    word = text_of(alert_type).lower()
    if word not in _SEVERITIES:
        run.count("unknown", "alert_type", "info")
        word = "info"
    run.event(title, {**attrs, "text": text_of(text), "datadog.alert_type": word}, _SEVERITIES[word])


@functools.cache
def get_metrics_client() -> DatadogMetrics:
    """The client of this process, created on first use from the environment."""
    return DatadogMetrics()


def _has_other_namespace(run: stepscope.Run, namespace: str) -> bool:
    """Return whether the run's Datadog sink would add a different namespace."""
    return any(each.name == "datadog" and each.config.namespace != namespace for each in setting(run, "sinks") or ())


def _status(status: Any) -> str:
    if isinstance(status, int) and not isinstance(status, bool) and 0 <= status <= 3:
        return _STATUSES[status]
    word = text_of(status).upper()
    return word if word in _STATUSES else "UNKNOWN"


def _sample_rate(rate: Any) -> float | None:
    """A sample rate between 0 and 1; None for anything else."""
    try:
        share = float(rate)
    except Exception:  # a user's object raised
        return None
    return share if 0 <= share <= 1 else None


def _negative(value: Any) -> Any:
    """The negative of a number, converted to a Python number first: NumPy's unsigned integers and bools have none.

    Anything else is returned unchanged, and counted as rejected when it is recorded.
    """
    try:
        number = number_of(value)
    except Exception:  # not a number, or a user's object raised
        return value
    return -number if isinstance(number, (int, float)) else value * -1.0  # a tensor stays on its device
