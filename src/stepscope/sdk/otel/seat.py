"""The run that the process's OpenTelemetry providers write to now."""

from collections.abc import Mapping
from typing import Any

from stepscope.sdk.attributes import clean
from stepscope.sdk.ports import Part

SCOPE = "otel.scope."
"""What a scope says beyond its name rides on its records under this prefix."""


class Seat:
    """Holds the current run, or none.

    OpenTelemetry takes one provider per process and forbids replacing it; runs come and go. So the providers
    stay and ask here for the run, each time.
    """

    __slots__ = ("run",)

    def __init__(self) -> None:
        self.run: Part | None = None


SEAT = Seat()
"""The process has one, as it has one set of providers."""


def said_by_scope(version: str | None, attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Turn what a scope says beyond its name into attributes of its records."""
    try:
        said = {SCOPE + str(key): value for key, value in (attributes or {}).items()}
        if version:
            said[f"{SCOPE}version"] = str(version)
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
