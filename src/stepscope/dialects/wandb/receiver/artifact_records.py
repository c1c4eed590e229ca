"""Records in runs that they made or used an artifact."""

from typing import Any

from stepscope.dialects.wandb.receiver.artifacts import LATEST, Artifact
from stepscope.dialects.wandb.receiver.run_operations import Caller
from stepscope.dialects.wandb.receiver.tracked_runs import Sent, TrackedRuns
from stepscope.model.names import EVENT_ARTIFACT, SEVERITIES
from stepscope.model.records import Event

_OWN_TYPES = ("run_table", "job", "wandb-history", "wandb-events")
"""Types of artifacts that the client logs by itself."""


def record_artifact(runs: TrackedRuns, artifact: Artifact, run: str, caller: Caller, event: str) -> None:
    """Record in a run that it made or used an artifact; not for those that the client makes by itself."""
    found = runs.find(artifact.project, run) if run else None
    if found is None or not found.about.attempt or artifact.type in _OWN_TYPES:
        return
    about: dict[str, Any] = {"name": artifact.collection, "version": f"v{artifact.version}", "kind": artifact.type}
    if event == EVENT_ARTIFACT:
        sizes = {"bytes": artifact.size, "files": artifact.files, "manifest": artifact.digest, "complete": True}
        aliases = {"aliases": [alias for alias in artifact.aliases if alias != LATEST]}
        about |= {"id": artifact.id, "copied": True, **sizes, **aliases}
        if artifact.history_step is not None:
            about["step"] = artifact.history_step
    with found.lock:
        sent = Sent(found, caller.access.project)
        place = (runs.clock(), found.about.step, None, None, None, SEVERITIES["INFO"])
        runs.add(sent, [Event(*place, event, about)])
        caller.waits.append(runs.submit(sent))
