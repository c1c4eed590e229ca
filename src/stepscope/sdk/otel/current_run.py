"""The run that the process's OpenTelemetry providers write to now."""

from collections.abc import Mapping
from typing import Any

from stepscope.sdk.attributes import clean
from stepscope.sdk.run_protocols import Part, Resource
from stepscope.sdk.writer_identity import resource_of

SCOPE = "otel.scope."
"""What a scope says beyond its name rides on its records under this prefix."""


class CurrentRun:
    """Holds the current run, or none.

    OpenTelemetry takes one provider per process and forbids replacing it; runs come and go. So the providers
    stay and ask here for the run, each time.
    """

    __slots__ = ("run",)

    def __init__(self) -> None:
        self.run: Part | None = None

    @property
    def resource(self) -> Resource:
        """The resource of the current run; empty when there is none."""
        return Resource({} if self.run is None else resource_of(self.run))


CURRENT = CurrentRun()
"""The process has one, as it has one set of providers."""


def said_by_scope(
    version: str | None, attributes: Mapping[str, Any] | None, schema_url: str | None = None
) -> dict[str, Any]:
    """Turn what a scope says beyond its name into attributes of its records."""
    try:
        said = {SCOPE + str(key): value for key, value in (attributes or {}).items()}
        if version:
            said[f"{SCOPE}version"] = str(version)
        if schema_url:
            said[f"{SCOPE}schema_url"] = str(schema_url)
        return clean(said)
    except Exception:
        return {}


def clean_attributes(run: Part, attributes: Any) -> dict[str, Any]:
    """Copy the attributes of a caller; what is no mapping is counted and costs only itself."""
    try:
        return clean(attributes)
    except Exception as error:
        run.outcomes.add("rejected", "attributes", type(error).__name__)
        return {}
