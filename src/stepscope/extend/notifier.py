"""What notifiers of dialects use."""

from stepscope.alerts.alert import Alert
from stepscope.alerts.dispatch import Notification
from stepscope.alerts.notifiers.registry import convert
from stepscope.alerts.notifiers.shapes import moment
from stepscope.alerts.notifiers.webhook import Poster, host_of
from stepscope.alerts.rule import severity_number

__all__ = [
    "Alert",
    "Notification",
    "Poster",
    "convert",
    "host_of",
    "moment",
    "severity_number",
]
