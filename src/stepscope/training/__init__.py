"""The vocabulary of training code, on top of the public API: contexts, collectors, traced loops, events, services."""

from stepscope.training.bus import Bus as Bus
from stepscope.training.categories import Category as Category
from stepscope.training.collector import MetricsCollector as MetricsCollector
from stepscope.training.collector import create_metrics_collector as create_metrics_collector
from stepscope.training.context import TrainingContext as TrainingContext
from stepscope.training.correlation import correlate as correlate
from stepscope.training.datadog import DatadogMetrics as DatadogMetrics
from stepscope.training.dist import DistInfo as DistInfo
from stepscope.training.evaluation import EVALUATOR_KEYS as EVALUATOR_KEYS
from stepscope.training.exceptions import is_user_error as is_user_error
from stepscope.training.labels import MetricRegistry as MetricRegistry
from stepscope.training.poller import Poller as Poller
from stepscope.training.service import get_metrics as get_metrics
from stepscope.training.service import init_telemetry as init_telemetry
from stepscope.training.service import shutdown_telemetry as shutdown_telemetry
from stepscope.training.telemetry import Telemetry as Telemetry
from stepscope.training.tracing import TracingContext as TracingContext
from stepscope.training.tracing import setup_tracing as setup_tracing
