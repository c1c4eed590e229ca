"""Input that cannot be used is counted in the current run, never raised."""

import stepscope


def reject(what: str, found: object) -> None:
    """Count input as rejected, with its type as the reason; without a run there is nobody to tell."""
    run = stepscope.current_run()
    if run is not None:
        run.outcomes.add("rejected", what, type(found).__name__)
