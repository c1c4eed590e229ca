"""Artifacts: collections of versions with aliases, a manifest per version, and files deduplicated by digest."""

import base64
import binascii
import contextlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stepscope.dialects.wandb.receiver.line_records import read_row
from stepscope.dialects.wandb.receiver.manifests import Damaged, Listed, ManifestFiles, Manifests, count_files
from stepscope.dialects.wandb.receiver.nodes import items
from stepscope.dialects.wandb.receiver.tracked_runs import TrackedRuns, check_name
from stepscope.extend.receiver import Refusal, Refused, replace_file
from stepscope.model.errors import Retry
from stepscope.model.redaction import redact

PENDING, COMMITTED, DELETED = "PENDING", "COMMITTED", "DELETED"
LATEST = "latest"


class Artifact(msgspec.Struct, kw_only=True):
    """One version of a collection."""

    project: str
    id: str
    collection: str
    type: str
    digest: str
    created: int
    updated: int = 0
    version: int | None = None
    """Set when the artifact is committed."""
    aliases: list[str] = []
    state: str = PENDING
    description: str | None = None
    metadata: str = "{}"
    run: str = ""
    client_id: str = ""
    history_step: int | None = None
    manifest: str = ""
    """The name of the manifest file."""
    users: list[str] = []
    """The runs that use it."""
    size: int = 0
    files: int = 0

    @property
    def name(self) -> str:
        """Return the name with the version, `model:v3`."""
        return f"{self.collection}:v{self.version}"


class Artifacts:
    """The artifacts of all projects, on disk and in memory. Safe to use from any thread."""

    def __init__(self, runs: TrackedRuns) -> None:
        self.runs = runs
        self._lock = threading.RLock()
        self._projects: dict[str, dict[str, Artifact]] = {}
        self._manifests = Manifests()

    def all(self, project: str) -> list[Artifact]:
        """Return the artifacts of a project that are not deleted, oldest first."""
        with self._lock:
            found = [each for each in self._project(project).values() if each.state != DELETED]
            return sorted(found, key=lambda each: (each.created, each.id))

    def _project(self, project: str) -> dict[str, Artifact]:
        check_name("project", project)
        known = self._projects.get(project)
        if known is None:
            known = self._projects[project] = {}
            for path in sorted(self.runs.folder(project, "artifacts").glob("*/artifact.json")):
                with contextlib.suppress(OSError, msgspec.DecodeError):
                    artifact = msgspec.json.decode(path.read_bytes(), type=Artifact)
                    known[artifact.id] = artifact
            _leave_one_holder(known.values())
        return known

    def projects(self) -> list[str]:
        """Return the projects whose artifacts were used since the start."""
        with self._lock:
            return list(self._projects)

    def get(self, project: str, id: str) -> Artifact | None:
        """Return the artifact with this id."""
        with self._lock:
            return self._project(project).get(id)

    def committed(self, project: str, collection: str | None = None, type: str | None = None) -> list[Artifact]:
        """Return the committed versions of one collection or of all, oldest first."""
        return [
            each
            for each in self.all(project)
            if each.state == COMMITTED and collection in (None, each.collection) and type in (None, each.type)
        ]

    def find(self, project: str, name: str) -> Artifact | None:
        """Return the artifact named `model:v3` or `model:best`; without a version or alias, the latest."""
        collection, _, alias = name.rpartition("/")[2].partition(":")
        return self.version(project, collection, alias or LATEST)

    def version(self, project: str, collection: str, alias: str) -> Artifact | None:
        """Return the version of a collection by alias, version or digest."""
        for each in reversed(self.committed(project, collection)):
            if alias in each.aliases or alias in (f"v{each.version}", each.digest):
                return each
        return None

    def create(self, project: str, given: Mapping[str, Any]) -> Artifact:
        """Create a version of a collection, or return the existing one with the same content."""
        collection = _name(given, "artifactCollectionName", "artifactCollectionNames")
        digest = str(given.get("digest") or "")
        aliases = read_aliases(given)
        with self._lock:
            same = [each for each in self.committed(project, collection) if digest and each.digest == digest]
            if same:
                return self._give_aliases(same[-1], aliases)
            metadata = read_row(given["metadata"]) if isinstance(given.get("metadata"), str) else None
            step = given.get("historyStep")
            made = Artifact(
                project=project,
                id=secrets.token_hex(12),
                collection=collection,
                type=_name(given, "artifactTypeName"),
                digest=digest,
                created=self.runs.clock(),
                aliases=aliases,
                description=_text(given.get("description")),
                metadata=msgspec.json.encode(redact(metadata or {})).decode(),
                run=_text(given.get("runName")) or "",
                client_id=_text(given.get("clientID")) or "",
                history_step=step if isinstance(step, int) else None,
            )
            self._save(made)
            return made

    def change(self, artifact: Artifact, make: Callable[[Artifact], Artifact]) -> Artifact:
        """Change an artifact on disk, then in memory; Retry when it cannot be written, and then it is as it was."""
        with self._lock:
            made = make(self._present(artifact))
            self._save(made)
            return made

    def _present(self, artifact: Artifact) -> Artifact:
        return self._project(artifact.project).get(artifact.id, artifact)

    def _save(self, artifact: Artifact) -> None:
        artifact.updated = self.runs.clock()
        folder = self.runs.make(self.folder(artifact))
        try:
            replace_file(folder / "artifact.json", msgspec.json.encode(artifact), fsync=True)
        except OSError as error:
            raise Retry(f"an artifact cannot be written: {error}", after=5.0) from error
        with self._lock:
            self._project(artifact.project)[artifact.id] = artifact

    def folder(self, artifact: Artifact) -> Path:
        """Return the folder of its description and manifest."""
        return self.runs.folder(artifact.project, "artifacts", artifact.id)

    def object(self, project: str, digest: str) -> Path:
        """Return the path of the file with this MD5, in hexadecimal."""
        if len(digest) != 32 or not set(digest) <= set("0123456789abcdef"):
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"{digest[:80]!r} is not an MD5 in hexadecimal"))
        return self.runs.folder(project, "objects", digest[:2]) / digest

    def commit(self, artifact: Artifact) -> Artifact:
        """Publish a version: give it a number and move its aliases to it."""
        with self._lock:
            artifact = self._present(artifact)
            if artifact.state == COMMITTED:
                return artifact
            numbers = [each.version for each in self.all(artifact.project) if each.collection == artifact.collection]
            version = max([number for number in numbers if number is not None], default=-1) + 1
            made = replace(artifact, version=version, state=COMMITTED)
            return self._give_aliases(made, [*artifact.aliases, LATEST])

    def link(self, artifact: Artifact, project: str, collection: str, aliases: Iterable[str]) -> Artifact:
        """Make a version of another collection with the same files, or return the one that is there."""
        given: dict[str, Any] = {
            "artifactCollectionName": collection,
            "artifactTypeName": artifact.type,
            "digest": artifact.digest,
        }
        given |= {"metadata": artifact.metadata, "description": artifact.description, "runName": artifact.run}
        wanted = list(aliases)
        made = self.create(project, {**given, "aliases": [{"alias": alias} for alias in wanted]})
        if made.state == COMMITTED:
            return made
        try:
            shutil.copyfile(self.folder(artifact) / artifact.manifest, self.folder(made) / artifact.manifest)
            if project != artifact.project:
                self._share_objects(artifact, project)
        except OSError as error:
            raise Retry(f"an artifact cannot be linked: {error}", after=5.0) from error
        self.change(made, lambda known: replace(known, history_step=artifact.history_step))
        self.set_manifest(made, artifact.manifest)
        return self.commit(made)

    def _share_objects(self, artifact: Artifact, project: str) -> None:
        """Let the files of an artifact be found in another project as well, without a copy of their content."""
        for _, entry, _ in self.files(artifact):
            digest = hex_digest(entry.digest)
            if entry.ref is None and digest:
                source, target = self.object(artifact.project, digest), self.object(project, digest)
                if not target.exists():
                    self.runs.make(target.parent)
                    os.link(source, target)

    def _give_aliases(self, artifact: Artifact, aliases: Iterable[str]) -> Artifact:
        """Move aliases to a version: it has them before the others lose them, so none is ever without a version."""
        wanted = list(dict.fromkeys(aliases))
        made = replace(artifact, aliases=list(dict.fromkeys([*artifact.aliases, *wanted])))
        self._save(made)
        for each in self.committed(made.project, made.collection):
            if each.id != made.id and not set(each.aliases).isdisjoint(wanted):
                self._save(replace(each, aliases=[alias for alias in each.aliases if alias not in wanted]))
        return made

    def change_aliases(self, artifact: Artifact, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Artifact:
        """Move aliases to a version, and remove some from it."""
        with self._lock:
            gone, known = set(remove), self._present(artifact)
            kept = [alias for alias in known.aliases if alias not in gone]
            return self._give_aliases(replace(known, aliases=kept), add)

    def set_manifest(self, artifact: Artifact, name: str) -> None:
        """Use an uploaded file as the manifest of an artifact; Refused when it is none."""
        path = self.folder(artifact) / name
        try:
            files, size = count_files(path)
        except Damaged as error:
            path.unlink(missing_ok=True)
            raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"the manifest cannot be read: {error}")) from None
        except OSError as error:
            raise Retry(f"a manifest cannot be read: {error}", after=5.0) from error
        self.change(artifact, lambda known: replace(known, manifest=name, files=files, size=size))

    def files(self, artifact: Artifact, check: Callable[[], None] = lambda: None) -> Sequence[Listed]:
        """Return the files of an artifact, of which only those that are used are read."""
        return ManifestFiles(self._manifests, self.folder(artifact) / artifact.manifest, artifact.files, check)

    def named_files(
        self, artifact: Artifact, names: Collection[str], check: Callable[[], None] = lambda: None
    ) -> Mapping[str, Listed]:
        """Return the files of some names."""
        return self._manifests.named(self.folder(artifact) / artifact.manifest, names, check)


def _leave_one_holder(artifacts: Iterable[Artifact]) -> None:
    """Take an alias from all versions but the one that got it last: a hub that was killed while it moved left two."""
    holders: dict[tuple[str, str], Artifact] = {}
    for each in sorted(artifacts, key=lambda each: (each.updated, each.version or 0)):
        for alias in each.aliases if each.state == COMMITTED else ():
            before = holders.get((each.collection, alias))
            if before is not None:
                before.aliases = [name for name in before.aliases if name != alias]
            holders[each.collection, alias] = each


def hex_digest(text: Any) -> str:
    """Convert an MD5 from base64, as in manifests, to hexadecimal; empty when it is invalid."""
    try:
        found = base64.b64decode(str(text), validate=True)
    except (ValueError, binascii.Error):
        return ""
    return found.hex() if len(found) == 16 else ""


def read_aliases(given: Mapping[str, Any]) -> list[str]:
    """Return the aliases in the input of a mutation; what is none is left out."""
    found = [each.get("alias") for each in items(given, "aliases") if isinstance(each, Mapping)]
    return [each for each in found if isinstance(each, str) and 0 < len(each) <= 128]


def _text(given: Any) -> str | None:
    return redact(given)[:65536] if isinstance(given, str) else None


def _name(given: Mapping[str, Any], *fields: str) -> str:
    for field in fields:
        found = given.get(field)
        found = found[0] if isinstance(found, list) and found else found
        if isinstance(found, str) and found:
            check_name(field, found)
            return found
    raise Refused(Refusal(HTTPStatus.BAD_REQUEST, f"{fields[0]} is missing"))
