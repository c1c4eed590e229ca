"""An event bus in the manner of Erlang's telemetry, with definitions of metrics, reporters and a poller."""

from stepscope.training.bus.dispatch import BUS as BUS
from stepscope.training.bus.dispatch import FAILURE as FAILURE
from stepscope.training.bus.dispatch import Attachment as Attachment
from stepscope.training.bus.dispatch import Bus as Bus
from stepscope.training.bus.dispatch import attach as attach
from stepscope.training.bus.dispatch import attach_many as attach_many
from stepscope.training.bus.dispatch import detach as detach
from stepscope.training.bus.dispatch import execute as execute
from stepscope.training.bus.dispatch import list_handlers as list_handlers
from stepscope.training.bus.dispatch import span as span
