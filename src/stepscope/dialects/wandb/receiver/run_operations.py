"""The GraphQL fields that a client uses while it logs a run."""

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from stepscope.dialects.wandb.receiver.descriptions import describe, own_config, own_fields
from stepscope.dialects.wandb.receiver.file_stream import EVENTS, HISTORY, OUTPUT
from stepscope.dialects.wandb.receiver.graphql import GraphQLError, JsonValue, Node, unsupported
from stepscope.dialects.wandb.receiver.nodes import items, read_id, write_id
from stepscope.dialects.wandb.receiver.query_limits import QueryCost
from stepscope.dialects.wandb.receiver.tracked_runs import OpenRun, Sent, TrackedRun, TrackedRuns
from stepscope.dialects.wandb.receiver.uploads import path_in
from stepscope.extend.receiver import Access, Refusal, Refused, Repeats, digest
from stepscope.model.names import SEVERITIES
from stepscope.model.records import Alert

ENTITY = "stepscope"
"""The default entity. Entities do not distinguish projects."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The context of a request: who sent it, and the writes its response must wait for."""

    access: Access
    base: str
    """The base URL of this hub as seen by the client."""
    authorization: str = ""
    waits: list["Future[None]"] = field(default_factory=list)
    """Writes that must be on disk before the response is sent."""

    entity: str = "stepscope"
    """The entity in the request, which is only echoed."""
    cost: QueryCost = field(default_factory=QueryCost)

    def reaches(self, project: str) -> bool:
        """Return whether the token covers a project."""
        return self.access.project in (None, project)

    def admit(self, project: str) -> None:
        """Raise Refused unless the token covers a project."""
        if not self.reaches(project):
            text = f"this token is for the project {self.access.project!r}, not {project!r}"
            raise Refused(Refusal(HTTPStatus.FORBIDDEN, text))

    def sees(self, about: TrackedRun) -> bool:
        """Return whether the token may read a run: it has the scope `read`, or created the run."""
        token = self.access.token
        return self.access.allows("read") or (token is not None and about.token == token.id)

    @property
    def upload_headers(self) -> list[str]:
        """Return the headers for uploads: the client's own credentials."""
        return [f"Authorization:{self.authorization}"] if self.authorization else []


class RunOperations:
    """Mutations and queries about one run."""

    def __init__(self, runs: TrackedRuns) -> None:
        self._runs = runs
        self._alerts: Repeats[bool] = Repeats()

    def mutations(self, caller: Caller) -> Node:
        """Return the mutations on runs."""
        calls: dict[str, Mutation] = {
            "upsertBucket": self._upsert,
            "rewindRun": self._rewind,
            "notifyScriptableRunAlert": self._alert,
            "createRunFiles": self._create_files,
        }
        no_sweeps = unsupported("sweeps (search with Optuna, one run for each trial in one group)")
        others = {"upsertSweep": no_sweeps, "createAgent": no_sweeps, "markRunFilesUploaded": {"success": True}}
        return {**with_inputs(calls, caller), **others}

    def queries(self, caller: Caller) -> Node:
        """Return the root query fields that a logging client needs."""
        return {
            "viewer": viewer(),
            "serverInfo": SERVER,
            "entity": lambda given: {"id": ENTITY, "name": given.get("name"), "organization": None, **_UNSUPPORTED},
            "organization": unsupported("registries and organizations"),
            "model": lambda given: self._model(given, caller),
            "clientIDMapping": None,
        }

    def _upsert(self, given: Mapping[str, Any], caller: Caller) -> Node:
        project, id = given.get("modelName"), given.get("name")
        if isinstance(given.get("id"), str):
            project, id = read_id("Run", given["id"])
        project, id = _named(project, "uncategorized"), _named(id)
        parent = self._branch_point(project, id, own_fields(given.get("config")).get("branch_point"))
        run = self._runs.find_or_make(project, id, caller.access.project)
        with run.lock:
            inserted, resuming = not run.about.attempt, run.about.resuming
            if inserted and parent is not None:
                run.about.parent, run.about.from_step = parent
            if inserted and caller.access.token is not None:
                run.about.token = caller.access.token.id
            sent = Sent(run, caller.access.project)
            describe(self._runs, sent, given)
            caller.waits.append(self._runs.submit(sent))
            # A resuming client continues at this count; others start at 0 or send all lines again.
            lines = run.about.stream(HISTORY).lines if resuming else 0
            node = bucket(run.about, given.get("entityName"))
            made = {**(node if caller.sees(run.about) else _unread(node)), "historyLineCount": lines}
            return {"bucket": made, "inserted": inserted}

    def _branch_point(self, project: str, id: str, given: Any) -> tuple[str, int | None] | None:
        """Return the run and the step that a new run is forked from; None for any other."""
        known = self._runs.find(project, id)
        if given is None or (known is not None and known.about.attempt):
            return None
        name = given.get("run_id") if isinstance(given, Mapping) else None
        if name == id:
            return None
        parent = self._runs.find(project, name) if isinstance(name, str) and name else None
        if parent is None:
            raise GraphQLError(f"this Stepscope hub has no run {str(name)[:200]!r} in the project that could be forked")
        step = given.get("step")
        return parent.about.run, int(step) if isinstance(step, (int, float)) and abs(step) < 2**62 else None

    def _rewind(self, given: Mapping[str, Any], caller: Caller) -> Node:
        """Let a run continue after an earlier step, as a new attempt: what came after it is kept as superseded."""
        project = _named(given.get("projectName"), "uncategorized")
        caller.admit(project)
        if given.get("metricName") != "_step":
            raise GraphQLError("this Stepscope hub continues runs from a _step only")
        run = self._runs.find(project, _named(given.get("runName")))
        if run is None or not run.about.attempt:
            raise GraphQLError("this Stepscope hub has no such run in the project that could be continued")
        with run.lock:
            run.about.resuming = True
            for stream in (EVENTS, OUTPUT):  # the client begins these again
                run.about.streams.pop(stream, None)
            node = {**bucket(run.about, given.get("entityName")), "historyLineCount": run.about.stream(HISTORY).lines}
            return {"rewoundRun": node if caller.sees(run.about) else _unread(node)}

    def _alert(self, given: Mapping[str, Any], caller: Caller) -> Node:
        project, id = _named(given.get("projectName"), "uncategorized"), _named(given.get("runName"))
        run = self._runs.find_or_make(project, id, caller.access.project)
        key = digest((run.about.project, run.about.id), json.dumps(given, sort_keys=True, default=str).encode())
        if self._alerts.find(key) is not None:
            return {"success": True}
        word = str(given.get("severity") or "INFO").upper()
        now = self._runs.clock()
        with run.lock:
            title, text = (str(given.get(part) or "")[:4096] for part in ("title", "text"))
            sent = Sent(run, caller.access.project)
            record = Alert(now, run.about.step, None, None, None, SEVERITIES.get(word, 9), title or "alert", text)
            self._runs.add(sent, [record])
            future = self._runs.submit(sent)
        future.add_done_callback(lambda done: None if done.exception() else self._alerts.keep(key, True))
        caller.waits.append(future)
        return {"success": True}

    def _create_files(self, given: Mapping[str, Any], caller: Caller) -> Node:
        project, id = _named(given.get("projectName"), "uncategorized"), _named(given.get("runName"))
        run = self._runs.find_or_make(project, id, caller.access.project)
        wanted = [name for name in items(given, "files") if isinstance(name, str)]
        for name in wanted:
            path_in(run.folder, name)
        where = f"{caller.base}/files/{_quoted(given.get('entityName') or ENTITY)}/{_quoted(project)}/{_quoted(id)}"
        return {
            "runID": write_id("Run", project, id),
            "uploadHeaders": caller.upload_headers,
            "files": [{"name": name, "uploadUrl": f"{where}/{quote(name)}"} for name in wanted],
        }

    def _model(self, given: Mapping[str, Any], caller: Caller) -> Node:
        project = _named(given.get("name"), "uncategorized")
        return {**project_node(project, given.get("entityName")), "bucket": self._bucket(project, caller)}

    def _bucket(self, project: str, caller: Caller) -> Callable[[Mapping[str, Any]], Node | None]:
        def find(given: Mapping[str, Any]) -> Node | None:
            caller.admit(project)
            run = self._runs.find(project, _named(given.get("name")))
            if run is None or not run.about.attempt:
                return None
            with run.lock:
                run.about.resuming = True
                node = {**bucket(run.about, None), **_progress(run)}
                return node if caller.sees(run.about) else _unread(node)

        return find


Mutation = Callable[[Mapping[str, Any], Caller], Any]


def with_inputs(calls: Mapping[str, Mutation], caller: Caller) -> Node:
    """Return mutations that get the object in their argument `input`."""

    def resolving(call: Mutation) -> Callable[[Mapping[str, Any]], Any]:
        def resolve(given: Mapping[str, Any]) -> Any:
            if not isinstance(given.get("input"), Mapping):
                raise GraphQLError("the mutation has no input")
            return call(given["input"], caller)

        return resolve

    return {name: resolving(call) for name, call in calls.items()}


def _named(given: Any, default: str = "") -> str:
    if given is None or given == "":
        given = default
    if not isinstance(given, str) or not given:
        raise GraphQLError("a run or project has no name")
    return given


def _quoted(given: Any) -> str:
    return quote(str(given), safe="")


def _progress(run: OpenRun) -> Node:
    about = run.about
    return {
        "historyLineCount": about.stream(HISTORY).lines,
        "eventsLineCount": about.stream(EVENTS).lines,
        "logLineCount": about.stream(OUTPUT).lines,
        "historyTail": _tail(about, HISTORY),
        "eventsTail": _tail(about, EVENTS),
        "summaryMetrics": about.summary,
        "wandbConfig": lambda given: own_config(about.config, given.get("keys")),
        "tags": about.tags,
        "notes": about.notes,
    }


def _unread(node: Node) -> Node:
    """Return a run without its contents, for a token that may write to it and not read it."""
    empty = {"displayName": node["name"], "notes": None, "tags": [], "config": "{}", "group": None, "jobType": None}
    tails = {"historyTail": "[]", "eventsTail": "[]", "summaryMetrics": "{}", "wandbConfig": "{}"}
    return {**node, **empty, **tails}


def _tail(about: TrackedRun, name: str) -> str:
    tail = about.stream(name).tail
    return json.dumps([tail] if tail else [])


def bucket(about: TrackedRun, entity: Any) -> dict[str, Any]:
    """Return the GraphQL object of a run, for clients that log to it."""
    return {
        "__typename": "Run",
        "id": write_id("Run", about.project, about.id),
        "name": about.id,
        "displayName": about.name or about.id,
        "description": None,
        "notes": about.notes,
        "tags": about.tags,
        "config": about.config,
        "sweepName": None,
        "group": about.group or None,
        "jobType": about.job_type or None,
        "project": project_node(about.project, entity),
    }


def project_node(project: str, entity: Any) -> dict[str, Any]:
    """Return the GraphQL object of a project; the entity is echoed from the request."""
    name = entity if isinstance(entity, str) and entity else ENTITY
    return {
        "__typename": "Project",
        "id": write_id("Project", project),
        "internalId": project_number(project),
        "name": project,
        "entityName": name,
        "entity": {"id": write_id("Entity", name), "name": name},
    }


def project_number(project: str) -> str:
    """Return a numeric id of a project; some clients parse it as an integer."""
    return str(int.from_bytes(hashlib.blake2b(project.encode("utf-8", "replace"), digest_size=6).digest(), "big"))


_UNSUPPORTED: Node = {
    "projects": unsupported("automations"),
    "triggers": unsupported("automations"),
    "integrations": unsupported("integrations"),
}
"""Fields of users and entities that clients select for features that a hub lacks."""


def viewer() -> Node:
    """Return the user object, which is the same for every client."""
    return {
        "__typename": "User",
        "id": write_id("User", ENTITY),
        "entity": ENTITY,
        "username": ENTITY,
        "name": ENTITY,
        "email": "",
        "admin": False,
        "flags": "{}",
        "teams": {"edges": []},
        "apiKeys": {"edges": []},
        "organizations": [],
        **_UNSUPPORTED,
    }


SERVER: Node = {
    "cliVersionInfo": JsonValue(max_cli_version="1.0.0"),
    "latestLocalVersionInfo": None,
    "features": [],
}
"""The server's version and features: none beyond those of the oldest clients."""
