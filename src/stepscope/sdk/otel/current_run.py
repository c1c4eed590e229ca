"""The run that the process's OpenTelemetry providers write to now."""

from collections.abc import Mapping
from typing import Any

from stepscope.model.redaction import redact
from stepscope.sdk.attributes import clean
from stepscope.sdk.interrupts import pass_on
from stepscope.sdk.run_protocols import Part, Resource
from stepscope.sdk.writer_identity import resource_of

SCOPE = "otel.scope."
"""Prefix of record attributes that hold version, schema URL and attributes of a scope."""


class CurrentRun:
    """Holds the current run, or None.

    OpenTelemetry allows one provider per process and forbids replacing it, while runs start and end. So the providers
    stay and look up the run for each call.
    """

    __slots__ = ("run",)

    def __init__(self) -> None:
        self.run: Part | None = None

    @property
    def resource(self) -> Resource:
        """The resource of the current run; empty when there is none."""
        return Resource({} if self.run is None else resource_of(self.run))


CURRENT = CurrentRun()
"""One per process, like the providers."""


def attributes_of_scope(
    version: str | None, attributes: Mapping[str, Any] | None, schema_url: str | None = None
) -> dict[str, Any]:
    """Return version, schema URL and attributes of a scope as record attributes."""
    try:
        scope_attrs = {SCOPE + str(key): value for key, value in (attributes or {}).items()}
        if version:
            scope_attrs[f"{SCOPE}version"] = str(version)
        if schema_url:
            scope_attrs[f"{SCOPE}schema_url"] = str(schema_url)
        masked: dict[str, Any] = redact(clean(scope_attrs))  # once for each scope, and merged into points as well
        return masked
    except BaseException as raised:  # whatever a foreign object raises when its text is asked for
        pass_on(raised)
        return {}


def masked_attributes(run: Part, attributes: Any) -> dict[str, Any]:
    """The same with secrets masked, for points: their series are distinguished by what is recorded of them."""
    masked: dict[str, Any] = redact(clean_attributes(run, attributes))
    return masked


def clean_attributes(run: Part, attributes: Any) -> dict[str, Any]:
    """Copy a caller's attributes; anything but a mapping is counted as rejected."""
    try:
        return clean(attributes)
    except BaseException as error:
        pass_on(error)
        run.outcomes.add("rejected", "attributes", type(error).__name__)
        return {}
