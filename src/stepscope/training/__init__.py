"""Interfaces of other training systems on top of the public API: contexts, collectors, tracing, events, services."""

from stepscope.training.bus import Bus as Bus
from stepscope.training.bus.runtime import Poller as Poller
from stepscope.training.collector import MetricsCollector as MetricsCollector
from stepscope.training.collector import create_metrics_collector as create_metrics_collector
from stepscope.training.collector.datadog import DatadogMetrics as DatadogMetrics
from stepscope.training.events.exceptions import is_user_error as is_user_error
from stepscope.training.events.telemetry import Telemetry as Telemetry
from stepscope.training.moved_modules import keep_earlier_names as _keep_earlier_names
from stepscope.training.service import get_metrics as get_metrics
from stepscope.training.service import init_telemetry as init_telemetry
from stepscope.training.service import shutdown_telemetry as shutdown_telemetry
from stepscope.training.service.correlation import correlate as correlate
from stepscope.training.tracing import TracingContext as TracingContext
from stepscope.training.tracing import setup_tracing as setup_tracing
from stepscope.training.trainer_context import EVALUATOR_KEYS as EVALUATOR_KEYS
from stepscope.training.trainer_context import DistInfo as DistInfo
from stepscope.training.trainer_context import TrainingContext as TrainingContext
from stepscope.training.trainer_fields import Category as Category
from stepscope.training.trainer_fields import MetricRegistry as MetricRegistry

_keep_earlier_names()
