"""A metrics collector and a DogStatsD-shaped client, both recording into the run."""

from stepscope.training.collector.collecting import MetricsCollector as MetricsCollector
from stepscope.training.collector.collecting import create_metrics_collector as create_metrics_collector
