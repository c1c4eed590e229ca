"""Input that cannot be used is counted in the current run, never raised."""

from typing import Any

import stepscope
from stepscope.extend import text_of


def reject(what: str, found: object) -> None:
    """Count input as rejected, with its type as the reason; without a run there is nobody to tell."""
    run = stepscope.current_run()
    if run is not None:
        run.count("rejected", what, type(found).__name__)


def mapping(what: str, given: Any) -> dict[str, Any]:
    """Copy a mapping with texts for keys; what is none, or cannot be read, is counted."""
    if given is None:
        return {}
    try:
        return {text_of(key): value for key, value in given.items()}
    except Exception:  # no mapping, or whatever a foreign one raises when it is read
        reject(what, given)
        return {}
