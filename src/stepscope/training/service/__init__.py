"""Telemetry of a multi-tenant training service: configuration, instruments and correlation keys."""

from stepscope.training.service.correlation import correlate as correlate
from stepscope.training.service.correlation import correlation as correlation
from stepscope.training.service.correlation import entered as entered
from stepscope.training.service.correlation import extract_context as extract_context
from stepscope.training.service.correlation import inject_context as inject_context
from stepscope.training.service.lifetime import TelemetryConfig as TelemetryConfig
from stepscope.training.service.lifetime import get_tracer as get_tracer
from stepscope.training.service.lifetime import init_telemetry as init_telemetry
from stepscope.training.service.lifetime import read_config as read_config
from stepscope.training.service.lifetime import shutdown_telemetry as shutdown_telemetry
from stepscope.training.service.service_metrics import get_metrics as get_metrics
