"""Attributes in which records keep what OpenTelemetry has as fields."""

ATTR_EXEMPLARS = "otel.exemplars"
"""A point's exemplars, [{value, time, trace_id, span_id, attrs}], ids in hex; not part of the series."""

ATTR_SCOPE = "otel.scope."
"""Prefix of record attributes that hold a scope's version, schema_url and attributes."""

ATTR_SCOPE_NAME = ATTR_SCOPE + "name"
"""On events and alerts, which have no field for it."""

ATTR_RESOURCE_SCHEMA = "otel.resource.schema_url"
ATTR_RESOURCE_DROPPED = "otel.resource.dropped_attributes_count"
ATTR_DROPPED = "otel.dropped_attributes_count"
ATTR_DROPPED_EVENTS = "otel.dropped_events_count"
ATTR_DROPPED_LINKS = "otel.dropped_links_count"
ATTR_FLAGS = "otel.flags"
"""The flags of a link; spans and logs have a field for theirs."""

ATTR_TRACE_STATE = "w3c.tracestate"
"""The trace state of a span, or of a link among the link's attributes."""

ATTR_SEVERITY_TEXT = "otel.severity_text"
"""A severity word that is not one of OpenTelemetry's."""

ATTR_EVENT_NAME = "event.name"
"""Where the name of an event stood before log records had a field for it."""
