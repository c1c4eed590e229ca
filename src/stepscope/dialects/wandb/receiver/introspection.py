"""The subset of GraphQL introspection with which older clients detect the fields of a server."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepscope.dialects.wandb.receiver.graphql import Node

_INPUTS: Mapping[str, Sequence[str]] = {
    "CreateArtifactInput": (
        *("entityName", "projectName", "runName", "artifactTypeName", "artifactCollectionName"),
        *("artifactCollectionNames", "digest", "digestAlgorithm", "description", "labels", "metadata", "aliases"),
        *("clientID", "sequenceClientID", "historyStep", "enableDigestDeduplication", "distributedID"),
    ),
    "CreateArtifactFileSpecInput": ("artifactID", "name", "md5", "mimetype", "artifactManifestID"),
    "UseArtifactInput": ("entityName", "projectName", "runName", "artifactID", "usedAs"),
    "AddAliasesInput": ("artifactID", "aliases"),
    "DeleteAliasesInput": ("artifactID", "aliases"),
}
_TYPES: Mapping[str, Sequence[str]] = {
    "ServerInfo": ("cliVersionInfo", "latestLocalVersionInfo", "features"),
    "Project": (
        "artifact",
        "artifactCollection",
        "artifactCollections",
        "artifactType",
        "artifactTypes",
        "run",
        "runs",
    ),
    "Artifact": (
        *("id", "digest", "description", "metadata", "state", "size", "fileCount", "createdAt", "updatedAt"),
        *("commitHash", "versionIndex", "aliases", "artifactType", "artifactSequence", "files", "currentManifest"),
        *("historyStep", "ttlDurationSeconds", "ttlIsInherited", "tags", "createdBy", "usedBy"),
    ),
}


def with_types(roots: Mapping[str, Node]) -> dict[str, Node]:
    """Return the root objects with `__type`, which lists the fields of the types that clients query."""
    known = {**_TYPES, "Query": tuple(roots["query"]), "Mutation": tuple(roots["mutation"])}
    return {**roots, "query": {**roots["query"], "__type": _describe(known)}}


def _describe(known: Mapping[str, Sequence[str]]) -> Callable[[Mapping[str, Any]], Node]:
    def describe(given: Mapping[str, Any]) -> Node:
        """Describe a type; an unknown one has no fields, since clients read `fields` without a check."""
        name = str(given.get("name"))
        fields, inputs = known.get(name, ()), _INPUTS.get(name, ())
        return {
            "name": name,
            "fields": [{"name": each, "args": []} for each in fields],
            "inputFields": [{"name": each} for each in inputs],
        }

    return describe
