"""The source of a model version: which run, model or version it names, whether it is theirs, and where its files are.

A hub stores where the files of a version are, and never opens that place itself.
"""

import posixpath
import sqlite3
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus, urlsplit

from stepscope.dialects.mlflow.receiver import logged_models, model_registry
from stepscope.dialects.mlflow.receiver.errors import refused
from stepscope.dialects.mlflow.receiver.experiments import ARTIFACTS
from stepscope.dialects.mlflow.receiver.run_table import find_run
from stepscope.dialects.mlflow.receiver.tracking_rows import REGISTERED_TAGS
from stepscope.extend.receiver import Refused

PROMPT_SOURCES = ("dummy-source", "prompt-template")
"""What clients send as the source of a prompt, which has none."""
_PROXY = ["api", "2.0", "mlflow-artifacts", "artifacts"]
_LOCAL = ("", "file")


class Source(NamedTuple):
    """A checked source: its URI, the place of the files, and the run that wrote them."""

    uri: str
    location: str
    run_id: str | None


class Given(NamedTuple):
    """The source of a request; None is a field that it does not have."""

    uri: str
    run_id: str | None
    model_id: str | None


def check_source(db: sqlite3.Connection, given: Given, project: str | None) -> Source:
    """Return a source; Refused unless the run or model that is given contains it, or it is a place outside this hub."""
    try:
        scheme, host = (parts := urlsplit(given.uri)).scheme, parts.netloc
    except ValueError:
        raise _invalid(given.uri, "The URI cannot be read.") from None
    if scheme == "models":
        return _of_models(db, given, host, project)
    if given.model_id and scheme not in _LOCAL:
        return _of_model(db, given, project)
    if scheme in _LOCAL:
        _check_local(db, given, project)
    elif scheme == "runs":
        _check_run(given, host)
    else:
        _check_path(given.uri)
        if _is_artifact(given.uri):
            _check_inside(db, given, project)
    return Source(given.uri, given.uri, given.run_id)


def _of_models(db: sqlite3.Connection, given: Given, host: str, project: str | None) -> Source:
    """Resolve `models:/ID`, `models:/NAME/VERSION`, `models:/NAME/STAGE` and `models:/NAME@ALIAS`."""
    if host:
        raise _invalid(given.uri, "Registered model sources must use the active model registry.")
    _check_path(given.uri)
    name, _, suffix = urlsplit(given.uri).path.lstrip("/").partition("/")
    if not name.strip() or "/" in suffix:
        raise _not_inside(given.uri, "model_id")
    if suffix or "@" in name:
        return _of_version(db, given, name, suffix, project)
    if given.model_id != name:
        raise _not_inside(given.uri, "model_id")
    try:
        model = logged_models.find(db, name, project)
    except Refused:
        raise _not_inside(given.uri, "model_id") from None
    return Source(given.uri, model.artifact_uri, given.run_id or model.source_run)


def _of_version(db: sqlite3.Connection, given: Given, name: str, suffix: str, project: str | None) -> Source:
    if not suffix:
        name, _, alias = name.rpartition("@")
    model = model_registry.find_model(db, name, project)
    if model_registry.is_prompt(REGISTERED_TAGS.read(db, model.number)):
        raise _invalid(given.uri, "Prompt versions cannot be used as model version sources.")
    if not suffix:
        number = str(resolve_alias(db, model, alias))
    elif suffix.isdigit():
        number = suffix
    else:
        number = str(newest(db, model, "" if suffix.lower() == model_registry.LATEST else suffix))
    _, version = model_registry.find_version(db, name, number, project)
    if given.run_id is not None and given.run_id != (version.run_id or ""):
        raise _invalid(given.uri, "The run_id and model_id request parameters must match the referenced model version.")
    return Source(f"models:/{name}/{version.version}", version.location, version.run_id)


def resolve_alias(db: sqlite3.Connection, model: model_registry.RegisteredModel, alias: str) -> int:
    """Return the version of an alias; `latest` is the newest version of any stage."""
    model_registry.check_alias(alias)
    if alias.lower() == model_registry.LATEST:
        return newest(db, model)
    row = db.execute(
        "SELECT version FROM registered_aliases WHERE model = ? AND alias = ?", (model.number, alias)
    ).fetchone()
    if row is None:
        raise refused(f"Registered model alias {alias} not found.")
    return int(row[0])


def newest(db: sqlite3.Connection, model: model_registry.RegisteredModel, stage: str = "") -> int:
    """Return the newest version, of a stage or of all."""
    wanted = model_registry.stage_named(stage) if stage else ""
    found = [each.version for each in model_registry.latest_versions(db, model) if wanted in ("", each.stage)]
    if not found:
        raise refused(f"Latest version not found for model {model.name}.", "RESOURCE_DOES_NOT_EXIST")
    return max(found)


def place_of(db: sqlite3.Connection, location: str, project: str | None) -> str:
    """Return where the files of a version are: for `runs:/RUN/PATH` below the artifacts of that run."""
    if urlsplit(location).scheme != "runs":
        return location
    run_id, _, path = urlsplit(location).path.lstrip("/").partition("/")
    return f"{find_run(db, run_id, project).artifact_uri.rstrip('/')}/{path}"


def _check_run(given: Given, host: str) -> None:
    """Refuse `runs:/RUN/PATH` of another run than the one that is given.

    Whether there is such a run is not looked up: it may be on another tracking server.
    """
    _check_path(given.uri)
    run_id = urlsplit(given.uri).path.lstrip("/").partition("/")[0]
    if host or not run_id or run_id != given.run_id:
        raise _not_inside(given.uri, "run_id")


def _of_model(db: sqlite3.Connection, given: Given, project: str | None) -> Source:
    _check_path(given.uri)
    try:
        model = logged_models.find(db, str(given.model_id), project)
    except Refused:
        raise _not_inside(given.uri, "model_id") from None
    if urlsplit(given.uri).scheme == "runs" or (
        _is_artifact(given.uri) and not _is_inside(given.uri, model.artifact_uri)
    ):
        raise _not_inside(given.uri, "model_id")
    return Source(given.uri, given.uri, given.run_id or model.source_run)


def _check_local(db: sqlite3.Connection, given: Given, project: str | None) -> None:
    """Refuse a path on the machine of the hub, unless it is below the artifacts of its run or model."""
    path = posixpath.normpath(urlsplit(given.uri).path)
    name = "model_id" if given.model_id else "run_id"
    try:
        if given.model_id:
            place = logged_models.find(db, given.model_id, project).artifact_uri
        else:
            place = find_run(db, given.run_id or "", project).artifact_uri
    except Refused:
        if given.model_id or given.run_id:
            raise _not_inside(given.uri, name) from None
        place = ""
    root = urlsplit(place)
    folder = posixpath.normpath(root.path) if place and root.scheme in _LOCAL else ""
    if not folder.startswith("/") or not (path == folder or path.startswith(f"{folder}/")):
        raise _invalid(
            path,
            f"To use a local path as a model version source, the {name} request parameter has to be specified and "
            f"the local path has to be contained within the artifact directory of the run specified by the {name}.",
        )


def _check_inside(db: sqlite3.Connection, given: Given, project: str | None) -> None:
    try:
        place = find_run(db, given.run_id or "", project).artifact_uri
    except Refused:
        raise _not_inside(given.uri, "run_id") from None
    if not _is_inside(given.uri, place):
        raise _not_inside(given.uri, "run_id")


def _check_path(uri: str) -> None:
    """Refuse relative parts of a path, however encoded."""
    plain = uri
    for _ in range(8):
        plain = unquote_plus(plain)
    path = posixpath.normpath(urlsplit(plain).path.rstrip("/") or "/")
    given = "/".join(part for part in urlsplit(plain).path.split("/") if part)
    if "\0" in plain or ".." in plain.split("/") or unquote_plus(plain) != plain or path.strip("/") != given:
        raise _invalid(
            uri,
            "If supplying a source as an http, https, local file path, ftp, objectstore, or mlflow-artifacts uri, an "
            "absolute path must be provided without relative path references present. Please provide an absolute path.",
        )


def _is_artifact(uri: str) -> bool:
    """Return whether a URI is one of the artifact proxy of a tracking server."""
    scheme, _, parts = _parts(uri)
    starts = range(len(parts) - len(_PROXY) + 1)
    proxied = scheme in ("http", "https") and any(parts[at : at + len(_PROXY)] == _PROXY for at in starts)
    return proxied or f"{scheme}:" == ARTIFACTS


def _is_inside(uri: str, root: str) -> bool:
    *place, parts = _parts(uri)
    *root_place, root_parts = _parts(root)
    return place == root_place and bool(root_parts) and parts[: len(root_parts)] == root_parts


def _parts(uri: str) -> tuple[str, str, list[str]]:
    found = urlsplit(uri)
    return found.scheme.lower(), found.netloc.lower(), [unquote(part) for part in found.path.split("/") if part]


def _invalid(uri: str, why: str) -> Refused:
    return refused(f"Invalid model version source: '{uri}'. {why}")


def _not_inside(uri: str, name: str) -> Refused:
    return _invalid(uri, f"The {name} request parameter must identify the resource that contains the source.")
