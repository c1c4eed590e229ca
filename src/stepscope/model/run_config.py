"""The configuration of a run: what its start and later events bring."""

from collections.abc import Mapping
from typing import Any

from stepscope.model.names import EVENT_CONFIG, EVENT_STARTED
from stepscope.model.records import Event


def config_of(event: Event) -> Mapping[str, Any] | None:
    """The configuration at a start, or the settings that an event adds or changes later; None for other events."""
    if event.name == EVENT_CONFIG:
        return event.attrs
    config = event.attrs.get("config") if event.name == EVENT_STARTED else None
    return config if isinstance(config, dict) else None
