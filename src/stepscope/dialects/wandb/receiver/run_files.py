"""The files of W&B runs for the page: uploads of the run, and files of the artifacts that it logged."""

import re
from collections.abc import Sequence
from pathlib import Path

from stepscope.dialects.wandb.receiver.artifacts import COMMITTED, Artifact, Artifacts, hex_digest
from stepscope.dialects.wandb.receiver.tracked_runs import TrackedRun, TrackedRuns
from stepscope.dialects.wandb.receiver.uploads import list_files, path_in
from stepscope.extend.receiver import Refused, RunFile, with_steps

MAX_FILES = 10_000
"""The limit of listed artifact files."""
_MEDIA = re.compile(r"media/[^/]+/.+_(\d{1,18})_[0-9a-f]{20}\.")
"""The client's names of media files: key, step, digest."""


class WandbRunFiles:
    """The files of all W&B runs."""

    def __init__(self, runs: TrackedRuns, artifacts: Artifacts) -> None:
        self._runs, self._artifacts = runs, artifacts

    def list(self, project: str, run: str) -> list[RunFile]:
        """List the uploads of a run and the files of its artifacts."""
        about = self._about(project, run)
        if about is None:
            return []
        found = with_steps(list_files(self._folder(about)), _MEDIA)
        for artifact in self._logged(about):
            found += self._files_of(artifact)
            if len(found) > MAX_FILES:
                break
        return found

    def find(self, project: str, run: str, name: str, artifact: str) -> Path | None:
        """Return the path of an upload, or of a file of an artifact, which is given by name or id."""
        about = self._about(project, run)
        if about is None:
            return None
        try:
            if not artifact:
                return path_in(self._folder(about), name)
            for each in self._logged(about):
                named = artifact in (each.name, each.id, each.client_id)
                found = self._artifacts.named_files(each, [name]) if named else {}
                if name in found:
                    return self._artifacts.object(each.project, hex_digest(found[name].entry.digest))
        except Refused:
            pass
        return None

    def _about(self, project: str, run: str) -> TrackedRun | None:
        try:
            found = self._runs.of_run(project, run)
        except Refused:  # a name that no W&B run can have
            return None
        return None if found is None else found.about

    def _folder(self, about: TrackedRun) -> Path:
        return self._runs.folder(about.project, "runs", about.id) / "files"

    def _logged(self, about: TrackedRun) -> Sequence[Artifact]:
        """Return the artifact versions that a run logged, newest first."""
        logged = [each for each in self._artifacts.all(about.project) if each.run == about.id]
        return [each for each in reversed(logged) if each.state == COMMITTED]

    def _files_of(self, artifact: Artifact) -> Sequence[RunFile]:
        found = []
        for name, entry, _ in self._artifacts.files(artifact)[:MAX_FILES]:
            digest = hex_digest(entry.digest)
            if entry.ref is None and digest:
                path = self._artifacts.object(artifact.project, digest)
                changed = artifact.created / 1e9
                found.append(RunFile(name, path, entry.size, changed, artifact.name, artifact.history_step))
        return found
