"""Input that cannot be used is counted in the current run, never raised."""

import stepscope
from stepscope.sdk.spans import message_of


def reject(what: str, found: object) -> None:
    """Count input as rejected, with its type as the reason; without a run there is nobody to tell."""
    run = stepscope.current_run()
    if run is not None:
        run.outcomes.add("rejected", what, type(found).__name__)


def said_by(error: BaseException) -> str:
    """An error in a notice: its type and message, also of one that cannot say them itself."""
    return f"{type(error).__name__}({message_of(error)!r})"
