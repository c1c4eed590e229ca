"""The GraphQL fields for logging, using, listing and downloading artifacts."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from stepscope.dialects.wandb.receiver.artifact_records import RecordedArtifacts
from stepscope.dialects.wandb.receiver.artifacts import (
    COMMITTED,
    DELETED,
    Artifact,
    Artifacts,
    hex_digest,
    read_aliases,
)
from stepscope.dialects.wandb.receiver.client_json import read_json
from stepscope.dialects.wandb.receiver.graphql import GraphQLError, Node
from stepscope.dialects.wandb.receiver.links import Links
from stepscope.dialects.wandb.receiver.manifests import Listed
from stepscope.dialects.wandb.receiver.nodes import connection, items, read_id, write_id
from stepscope.dialects.wandb.receiver.run_operations import Caller, Mutation, project_node, with_inputs
from stepscope.dialects.wandb.receiver.tracked_runs import check_name
from stepscope.model.names import EVENT_ARTIFACT, EVENT_ARTIFACT_USED
from stepscope.model.redaction import redact

Given = Mapping[str, Any]


class ArtifactQueries:
    """GraphQL mutations, queries and objects of artifacts."""

    def __init__(self, artifacts: Artifacts, links: Links) -> None:
        self._artifacts, self._links = artifacts, links
        self._recorded = RecordedArtifacts(artifacts.runs)

    def mutations(self, caller: Caller) -> Node:
        """Return the mutations on artifacts."""
        calls: dict[str, Mutation] = {
            "createArtifact": self._create,
            "createArtifactManifest": lambda given, caller: self._manifest(self._named(given, caller), caller),
            "updateArtifactManifest": lambda given, caller: self._manifest(
                self._named(given, caller, "artifactManifestID", "Manifest"), caller
            ),
            "createArtifactFiles": self._create_files,
            "commitArtifact": self._commit,
            "useArtifact": self._use,
            "linkArtifact": self._link,
            "updateArtifact": self._update,
            "addAliases": lambda given, caller: self._change_aliases(given, caller, add=True),
            "deleteAliases": lambda given, caller: self._change_aliases(given, caller, add=False),
            "deleteArtifact": self._delete,
        }
        return with_inputs(calls, caller)

    def queries(self, caller: Caller) -> Node:
        """Return the root query fields."""
        return {
            "artifact": lambda given: self._by_id(given.get("id"), caller),
            "clientIDMapping": None,
        }

    def of_project(self, project: str, caller: Caller) -> Node:
        """Return the artifact fields of a project."""

        def types(given: Given) -> Node:
            names = list(dict.fromkeys(each.type for each in self._artifacts.committed(project)))
            return connection(names, given, node=lambda name: self._type(project, name, caller))

        def membership(given: Given) -> Node | None:
            found = self._artifacts.find(project, str(given.get("name") or ""))
            return None if found is None else self._membership(found, caller)

        return {
            "artifact": lambda given: self._find_named(project, given, caller),
            "artifactCollectionMembership": membership,
            "artifactType": lambda given: self._type(project, str(given.get("name")), caller),
            "artifactTypes": types,
            "artifactCollection": lambda given: self._collection(project, str(given.get("name")), caller),
            "artifactCollections": lambda given: connection(self._collections(project, None, caller), given),
        }

    def of_run(self, project: str, run: str, caller: Caller) -> Node:
        """Return the artifact fields of a run."""

        def made(given: Given) -> Node:
            return connection([self.node(e, caller) for e in self._artifacts.committed(project) if e.run == run], given)

        def used(given: Given) -> Node:
            every = self._artifacts.committed(project)
            return connection([self.node(each, caller) for each in every if run in each.users], given)

        return {"outputArtifacts": made, "inputArtifacts": used}

    def delete_of_run(self, project: str, run: str) -> None:
        """Delete the artifacts that a run logged."""
        for each in self._artifacts.all(project):
            if each.run == run:
                self._artifacts.change(each, _deleted)

    def _find_named(self, project: str, given: Given, caller: Caller) -> Node | None:
        found = self._artifacts.find(project, str(given.get("name") or ""))
        return None if found is None else self.node(found, caller)

    def _type(self, project: str, name: str, caller: Caller) -> Node:
        return {
            "__typename": "ArtifactType",
            "id": write_id("ArtifactType", project, name),
            "name": name,
            "description": None,
            "createdAt": stamp(0),
            "artifact": lambda given: self._find_named(project, given, caller),
            "artifactCollection": lambda given: self._collection(project, str(given.get("name")), caller),
            "artifactSequence": lambda given: self._collection(project, str(given.get("name")), caller),
            "artifactCollections": lambda given: connection(self._collections(project, name, caller), given),
            "artifactSequences": lambda given: connection(self._collections(project, name, caller), given),
        }

    def _collections(self, project: str, type: str | None, caller: Caller) -> list[Node]:
        names = dict.fromkeys(each.collection for each in self._artifacts.committed(project, type=type))
        return [found for name in names if (found := self._collection(project, name, caller)) is not None]

    def _collection(self, project: str, name: str, caller: Caller) -> Node | None:
        versions = self._artifacts.committed(project, name)
        if not versions:
            return None
        nodes = [self.node(each, caller) for each in reversed(versions)]

        def membership(given: Given) -> Node | None:
            found = self._artifacts.version(project, name, str(given.get("aliasName")))
            return None if found is None else self._membership(found, caller)

        def aliases(given: Given) -> Node:
            every = [alias for each in versions for alias in each.aliases]
            return connection([{"id": alias, "alias": alias} for alias in every], given)

        return {
            **_sequence(versions[-1], caller),
            "createdAt": stamp(versions[0].created),
            "updatedAt": stamp(versions[-1].updated),
            "type": {"name": versions[-1].type},
            "defaultArtifactType": {"name": versions[-1].type},
            "aliases": aliases,
            "tags": {"edges": []},
            "latestArtifact": nodes[0],
            "artifacts": lambda given: connection(nodes, given, "version"),
            "versions": lambda given: connection(nodes, given, "version"),
            "artifactMembership": membership,
            "artifactMemberships": lambda given: connection([self._membership(e, caller) for e in versions], given),
        }

    def _membership(self, artifact: Artifact, caller: Caller) -> Node:
        return {
            "__typename": "ArtifactCollectionMembership",
            "id": write_id("Membership", artifact.project, artifact.id),
            "versionIndex": artifact.version,
            "createdAt": stamp(artifact.created),
            "updatedAt": stamp(artifact.updated),
            "aliases": _aliases(artifact, caller),
            "artifactCollection": _sequence(artifact, caller),
            "artifact": self.node(artifact, caller),
            "files": lambda given: self._files(artifact, given, caller),
        }

    def node(self, artifact: Artifact, caller: Caller) -> Node:
        """Return the GraphQL object of an artifact."""

        def by_entries(given: Given) -> Node:
            names = [each.get("name") for each in items(given, "entries") if isinstance(each, Mapping)]
            return self._chosen_files(artifact, names, {}, caller)

        run = {"__typename": "Run", "id": write_id("Run", artifact.project, artifact.run), "name": artifact.run}
        run["project"] = project_node(artifact.project, caller.entity)  # type: ignore[assignment]
        place = ("manifest", artifact.project, artifact.id, artifact.manifest)
        return {
            "__typename": "Artifact",
            "id": write_id("Artifact", artifact.project, artifact.id),
            "name": artifact.name,
            "version": f"v{artifact.version}",
            "artifactSequence": _sequence(artifact, caller),
            "artifactCollections": {"edges": [{"node": _sequence(artifact, caller)}]},
            "versionIndex": artifact.version,
            "artifactType": {"id": write_id("ArtifactType", artifact.type), "name": artifact.type},
            "description": artifact.description,
            "metadata": artifact.metadata,
            "ttlDurationSeconds": -2,
            "ttlIsInherited": True,
            "tags": [],
            "historyStep": artifact.history_step,
            "state": artifact.state,
            "size": artifact.size,
            "digest": artifact.digest,
            "digestAlgorithm": "MANIFEST_MD5",
            "commitHash": artifact.id,
            "fileCount": artifact.files,
            "createdAt": stamp(artifact.created),
            "updatedAt": stamp(artifact.updated),
            "aliases": _aliases(artifact, caller),
            "createdBy": run if artifact.run else None,
            "usedBy": {"edges": [{"node": {**run, "name": user}} for user in artifact.users]},
            "currentManifest": {
                "id": write_id("Manifest", artifact.project, artifact.id),
                "file": {"directUrl": self._links.make(caller.base, "wandb_manifest.json", *place)},
            },
            "files": lambda given: self._files(artifact, given, caller),
            "filesByManifestEntries": by_entries,
        }

    def _files(self, artifact: Artifact, given: Given, caller: Caller) -> Node:
        return self._chosen_files(artifact, items(given, "names"), given, caller)

    def _chosen_files(self, artifact: Artifact, names: Sequence[Any], given: Given, caller: Caller) -> Node:
        """Return a page of the files of some names; without names, of all of them."""
        found: Sequence[Listed]
        if names:
            asked = dict.fromkeys(name for name in names if isinstance(name, str))
            known = self._artifacts.named_files(artifact, asked, caller.cost.check)
            found = [known[name] for name in asked if name in known]
        else:
            found = self._artifacts.files(artifact, caller.cost.check)
        return connection(found, given, node=lambda each: self._file(artifact, each, caller))

    def _file(self, artifact: Artifact, listed: Listed, caller: Caller) -> Node:
        name, entry, _ = listed
        digest = hex_digest(entry.digest)
        url = self._links.make(caller.base, name, "object", artifact.project, digest) if digest else entry.ref
        return {
            "__typename": "File",
            "id": write_id("File", artifact.project, artifact.id, name),
            "name": name,
            "displayName": name,
            "url": url,
            "directUrl": url,
            "sizeBytes": entry.size,
            "storagePath": name,
            "mimetype": None,
            "updatedAt": stamp(artifact.updated),
            "digest": entry.digest,
            "md5": entry.digest,
        }

    def _by_id(self, id: Any, caller: Caller) -> Node | None:
        project, name = read_id("Artifact", str(id))
        caller.admit(project)
        found = self._artifacts.get(project, name)
        if found is None or found.state == DELETED or not self._sees(found, caller):
            return None
        return self.node(found, caller)

    def _sees(self, artifact: Artifact, caller: Caller) -> bool:
        """Return whether the token may read an artifact: that of a run that it may read."""
        if caller.access.allows("read"):
            return True
        run = self._artifacts.runs.find(artifact.project, artifact.run) if artifact.run else None
        return run is not None and caller.sees(run.about)

    def _named(self, given: Given, caller: Caller, field: str = "artifactID", kind: str = "Artifact") -> Artifact:
        project, id = read_id(kind, str(given.get(field)))
        caller.admit(project)
        found = self._artifacts.get(project, id)
        if found is None or found.state == DELETED:
            raise GraphQLError(f"there is no artifact {id!r} in the project {project!r}")
        if not self._sees(found, caller):
            raise GraphQLError("this artifact is of a run that this key may not read: use a key with the scope 'read'")
        return found

    def _create(self, given: Given, caller: Caller) -> Node:
        project = str(given.get("projectName") or "uncategorized")
        caller.admit(project)
        made = self._artifacts.create(project, given)
        latest = self._artifacts.version(project, made.collection, "latest")
        seen = latest if latest is not None and self._sees(latest, caller) else None
        sequence = {**_sequence(made, caller), "latestArtifact": None if seen is None else self.node(seen, caller)}
        return {"artifact": {**self.node(made, caller), "artifactSequence": sequence}}

    def _manifest(self, artifact: Artifact, caller: Caller) -> Node:
        """Return the manifest of an artifact, with the address at which it can be written."""
        where = f"{caller.base}/wandb/manifests/{quote(artifact.project, safe='')}/{artifact.id}"
        file = {"id": artifact.id, "name": "wandb_manifest.json", "displayName": "wandb_manifest.json"}
        file |= {"uploadUrl": where, "uploadHeaders": caller.upload_headers}  # type: ignore[dict-item]
        return {"artifactManifest": {"id": write_id("Manifest", artifact.project, artifact.id), "file": file}}

    def _create_files(self, given: Given, caller: Caller) -> Node:
        nodes = [self._upload(each, caller) for each in items(given, "artifactFiles") if isinstance(each, Mapping)]
        return {"files": {"edges": [{"node": node} for node in nodes]}}

    def _upload(self, given: Given, caller: Caller) -> Node:
        artifact = self._named(given, caller)
        digest = hex_digest(given.get("md5"))
        path = self._artifacts.object(artifact.project, digest)
        where = f"{caller.base}/wandb/objects/{quote(artifact.project, safe='')}/{digest}"
        return {
            "id": digest,
            "name": given.get("name"),
            "displayName": given.get("name"),
            "storagePath": given.get("name"),
            "uploadUrl": None if path.exists() else where,
            "uploadHeaders": caller.upload_headers,
            "uploadMultipartUrls": None,
            "artifact": self.node(artifact, caller),
        }

    def _commit(self, given: Given, caller: Caller) -> Node:
        artifact = self._artifacts.commit(self._named(given, caller))
        self._recorded.note(artifact, artifact.run, caller, EVENT_ARTIFACT)
        return {"artifact": self.node(artifact, caller)}

    def _link(self, given: Given, caller: Caller) -> Node:
        if given.get("artifactID") is None and isinstance(given.get("clientID"), str):
            artifact = self._of_client(given, caller)
        else:
            artifact = self._named(given, caller)
        if artifact.state != COMMITTED:
            raise GraphQLError("the artifact is not complete; link it once it is logged")
        project = str(given.get("projectName") or artifact.project)
        caller.admit(project)
        collection = str(given.get("artifactPortfolioName") or "")
        check_name("collection", collection)
        made = self._artifacts.link(artifact, project, collection, read_aliases(given))
        if project == artifact.project:
            self._recorded.note(made, made.run, caller, EVENT_ARTIFACT, again=True)
        return {"versionIndex": made.version, "artifactMembership": self._membership(made, caller)}

    def _of_client(self, given: Given, caller: Caller) -> Artifact:
        """Find an artifact by the id that its client gave it, which is all that is known before it is logged."""
        for project in self._artifacts.projects():
            for each in self._artifacts.all(project) if caller.reaches(project) else ():
                if each.client_id == given["clientID"] and self._sees(each, caller):
                    return each
        raise GraphQLError("there is no artifact with this client id")

    def _use(self, given: Given, caller: Caller) -> Node:
        artifact = self._named(given, caller)
        run = given.get("runName")
        if isinstance(run, str) and artifact.state == COMMITTED:
            if run not in artifact.users:
                artifact = self._artifacts.change(artifact, lambda known: replace(known, users=[*known.users, run]))
            self._recorded.note(artifact, run, caller, EVENT_ARTIFACT_USED)
        return {"artifact": self.node(artifact, caller)}

    def _update(self, given: Given, caller: Caller) -> Node:
        artifact = self._named(given, caller)
        changed: dict[str, str] = {}
        if isinstance(given.get("description"), str):
            changed["description"] = redact(given["description"])
        if isinstance(given.get("metadata"), str):
            changed["metadata"] = json.dumps(redact(_object(given["metadata"])))
        artifact = self._artifacts.change(artifact, lambda known: replace(known, **changed))
        if isinstance(given.get("aliases"), list):
            wanted = read_aliases(given)
            artifact = self._artifacts.change_aliases(artifact, wanted, set(artifact.aliases) - set(wanted))
        return {"artifact": self.node(artifact, caller)}

    def _change_aliases(self, given: Given, caller: Caller, *, add: bool) -> Node:
        artifact = self._named(given, caller)
        aliases = read_aliases(given)
        self._artifacts.change_aliases(artifact, aliases if add else (), () if add else aliases)
        return {"success": True}

    def _delete(self, given: Given, caller: Caller) -> Node:
        artifact = self._artifacts.change(self._named(given, caller), _deleted)
        return {"artifact": self.node(artifact, caller)}


def _deleted(artifact: Artifact) -> Artifact:
    return replace(artifact, state=DELETED)


def _object(text: str) -> dict[str, Any]:
    try:
        found = read_json(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise GraphQLError("metadata must be a JSON object")
    return found


def _sequence(artifact: Artifact, caller: Caller) -> dict[str, Any]:
    return {
        "__typename": "ArtifactSequence",
        "id": write_id("Collection", artifact.project, artifact.collection),
        "createdAt": stamp(artifact.created),
        "updatedAt": stamp(artifact.updated),
        "name": artifact.collection,
        "description": None,
        "project": project_node(artifact.project, caller.entity),
    }


def _aliases(artifact: Artifact, caller: Caller) -> Sequence[Node]:
    return [
        {
            "__typename": "ArtifactAlias",
            "id": write_id("Alias", artifact.project, artifact.id, alias),
            "alias": alias,
            "artifactCollectionName": artifact.collection,
            "artifactCollection": _sequence(artifact, caller),
        }
        for alias in (*artifact.aliases, *([f"v{artifact.version}"] if artifact.version is not None else ()))
    ]


def stamp(time: int, precision: str = "seconds") -> str:
    """Format a time in nanoseconds as ISO 8601."""
    return datetime.fromtimestamp(time / 1e9, UTC).replace(tzinfo=None).isoformat("T", precision) + "Z"
