"""Records in runs that they made or used an artifact."""

from concurrent.futures import Future
from typing import Any

from stepscope.dialects.wandb.receiver.artifacts import LATEST, Artifact
from stepscope.dialects.wandb.receiver.run_operations import Caller
from stepscope.dialects.wandb.receiver.tracked_runs import Sent, TrackedRuns
from stepscope.model.names import EVENT_ARTIFACT, SEVERITIES
from stepscope.model.records import Event

_OWN_TYPES = ("run_table", "job", "wandb-history", "wandb-events")
"""Types of artifacts that the client logs by itself."""
_MAX_KNOWN = 10_000
"""When more records than this are known to be safe, all are forgotten."""


class RecordedArtifacts:
    """Records in runs that they made or used an artifact, each once since the start of the hub.

    A client repeats what was not answered, after a kill too, so what was kept of the artifact does not say whether the
    run has the record: it may have it twice then, and answers show it once.
    """

    def __init__(self, runs: TrackedRuns) -> None:
        self._runs = runs
        self._safe: set[tuple[str, str, str, str]] = set()

    def note(self, artifact: Artifact, run: str, caller: Caller, event: str, *, again: bool = False) -> None:
        """Record it in a run, `again` also if that is done; not for artifacts that the client makes by itself."""
        found = self._runs.find(artifact.project, run) if run else None
        key = (artifact.project, artifact.id, run, event)
        if found is None or not found.about.attempt or artifact.type in _OWN_TYPES or (key in self._safe and not again):
            return
        with found.lock:
            sent = Sent(found, caller.access.project)
            place = (self._runs.clock(), found.about.step, None, None, None, SEVERITIES["INFO"])
            self._runs.add(sent, [Event(*place, event, _described(artifact, event))])
            future = self._runs.submit(sent)
        future.add_done_callback(lambda done: self._settle(key, done))
        caller.waits.append(future)

    def _settle(self, key: tuple[str, str, str, str], done: "Future[None]") -> None:
        if not done.cancelled() and done.exception() is None:
            if len(self._safe) >= _MAX_KNOWN:
                self._safe.clear()
            self._safe.add(key)


def _described(artifact: Artifact, event: str) -> dict[str, Any]:
    about: dict[str, Any] = {"name": artifact.collection, "version": f"v{artifact.version}", "kind": artifact.type}
    if event == EVENT_ARTIFACT:
        sizes = {"bytes": artifact.size, "files": artifact.files, "manifest": artifact.digest, "complete": True}
        aliases = {"aliases": [alias for alias in artifact.aliases if alias != LATEST]}
        about |= {"id": artifact.id, "copied": True, **sizes, **aliases}
        if artifact.history_step is not None:
            about["step"] = artifact.history_step
    return about
