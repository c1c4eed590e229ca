"""An event bus modelled on Erlang's telemetry, with metric definitions, reporters and a poller."""

from stepscope.training.bus.event_bus import BUS as BUS
from stepscope.training.bus.event_bus import FAILURE as FAILURE
from stepscope.training.bus.event_bus import Attachment as Attachment
from stepscope.training.bus.event_bus import Bus as Bus
from stepscope.training.bus.event_bus import attach as attach
from stepscope.training.bus.event_bus import attach_many as attach_many
from stepscope.training.bus.event_bus import detach as detach
from stepscope.training.bus.event_bus import execute as execute
from stepscope.training.bus.event_bus import list_handlers as list_handlers
from stepscope.training.bus.event_bus import span as span
