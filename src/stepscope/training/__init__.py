"""The vocabulary of training code, on top of the public API: contexts, collectors, traced loops, events, services."""

from stepscope.training.categories import Category as Category
from stepscope.training.collector import MetricsCollector as MetricsCollector
from stepscope.training.collector import create_metrics_collector as create_metrics_collector
from stepscope.training.context import TrainingContext as TrainingContext
from stepscope.training.datadog import DatadogMetrics as DatadogMetrics
from stepscope.training.dist import DistInfo as DistInfo
from stepscope.training.evaluation import EVALUATOR_KEYS as EVALUATOR_KEYS
from stepscope.training.labels import MetricRegistry as MetricRegistry
from stepscope.training.tracing import TracingContext as TracingContext
from stepscope.training.tracing import setup_tracing as setup_tracing
