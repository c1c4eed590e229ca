"""The GraphQL fields for reading projects and runs, whichever client logged them."""

import fnmatch
import json
import mimetypes
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

from stepscope.dialects.wandb.receiver.artifact_queries import ArtifactQueries, stamp
from stepscope.dialects.wandb.receiver.descriptions import plain_config
from stepscope.dialects.wandb.receiver.graphql import GraphQLError, JsonValue, Node, unsupported
from stepscope.dialects.wandb.receiver.links import Links
from stepscope.dialects.wandb.receiver.nodes import connection, items, read_id, write_id
from stepscope.dialects.wandb.receiver.run_filters import matches, read_filters, sort_key
from stepscope.dialects.wandb.receiver.run_history import RunHistory, read_spec
from stepscope.dialects.wandb.receiver.run_operations import Caller, bucket, project_node, project_number, with_inputs
from stepscope.dialects.wandb.receiver.tracked_runs import TrackedRun, TrackedRuns
from stepscope.dialects.wandb.receiver.uploads import list_files
from stepscope.extend.receiver import Engine, EngineError, ReadBack, RunDeletion, RunRow, RunStates, list_runs, pauses
from stepscope.model.errors import Retry
from stepscope.model.run_description import tag_text
from stepscope.model.states import UNFINISHED, State
from stepscope.wire.plain import plain

RECEIVER = "wandb"
WAIT_SECONDS = 10.0
"""How long a read waits for the client's own writes to be stored."""
_STATES: Mapping[State, str] = {"importing": "running", "stalled": "running"}
"""W&B's states for those states of this hub that W&B does not have."""
Given = Mapping[str, Any]


class RunQueries:
    """Queries for projects, runs, their history and their files."""

    def __init__(
        self,
        runs: TrackedRuns,
        engine: Callable[[], Engine],
        artifacts: ArtifactQueries,
        links: Links,
        stored: Callable[[], "Future[None]"],
        states: RunStates,
        read_back: ReadBack,
        deletion: RunDeletion,
    ) -> None:
        self._runs, self._engine, self._artifacts, self._links = runs, engine, artifacts, links
        self._stored, self._states, self._read_back, self._deletion = stored, states, read_back, deletion

    def queries(self, caller: Caller) -> Node:
        """Return the root query fields."""
        lists = _Lists(self, caller)
        return {
            "project": lambda given: self._project(given, lists),
            "models": lambda given: self._projects(given, lists),
            "projects": lambda given: self._projects(given, lists),
        }

    def mutations(self, caller: Caller) -> Node:
        """Return the mutations on runs that clients no longer log to."""
        return with_inputs({"deleteRun": self._delete}, caller)

    def _delete(self, given: Given, caller: Caller) -> Node:
        """Delete a run as `stepscope delete` does: it must have ended, and the token needs the scope `admin`."""
        project, id = read_id("Run", str(given.get("id")))
        caller.admit(project)
        row, tracked = self._row(project, id)
        if row is None:
            raise GraphQLError(f"there is no run {id[:80]!r} in the project {project[:80]!r}")
        state = self._states.state(row)
        if state in UNFINISHED:
            raise GraphQLError(f"the run {row.id} is {state}: end it before you delete it")
        try:
            self._deletion.delete(row, caller.access.user())
        except OSError as error:
            raise Retry(f"the run cannot be deleted: {error.strerror or error}", after=5.0) from error
        if given.get("deleteArtifacts"):
            self._artifacts.delete_of_run(project, id if tracked is None else tracked.id)
        return {"clientMutationId": None}

    def _projects(self, given: Given, lists: "_Lists") -> Node:
        lists.caller.cost.list()
        names = dict.fromkeys(row.project for row in lists.rows(None))
        reached = [name for name in names if lists.caller.reaches(name)]
        return connection(reached, given, node=lambda name: self._node(name, lists))

    def _project(self, given: Given, lists: "_Lists") -> Node | None:
        name = given.get("name")
        if not isinstance(name, str) or not name or not lists.caller.access.allows("read"):
            return None
        lists.caller.admit(name)
        return self._node(name, lists)

    def _node(self, name: str, lists: "_Lists") -> Node:
        caller = lists.caller
        return {
            **project_node(name, caller.entity),
            "readOnly": False,
            "createdAt": lambda given: stamp(min((row.created for row in lists.rows(name)), default=0)),
            "isBenchmark": False,
            "runCount": lambda given: len(lists.chosen(name, given)),
            "runs": lambda given: connection(
                lists.chosen(name, given), given, node=lambda each: self._run(each.row, each.about, caller)
            ),
            "run": lambda given: self._find(name, given, caller),
            "bucket": lambda given: self._find(name, given, caller),
            "sweeps": lambda given: connection([], given),
            "totalSweeps": 0,
            "sweep": unsupported("sweeps"),
            "allViews": unsupported("reports"),
            "triggers": unsupported("automations"),
            "runQueue": unsupported("launch queues"),
            **self._artifacts.of_project(name, caller),
        }

    def rows(self, project: str | None) -> list[RunRow]:
        """Return the runs of a project, or all, once what was journaled can be read."""
        self._wait()
        try:
            return list_runs(self._engine(), project=project)
        except EngineError as error:
            raise Retry(f"the store is failing: {error}", after=5.0) from error

    def _wait(self, run: str | None = None) -> None:
        """Wait until all journaled records, of one run or of all, can be read: clients read their own writes."""
        deadline, pause = time.monotonic() + WAIT_SECONDS, pauses()
        try:
            self._stored().result(WAIT_SECONDS)
            while not self._read_back.is_complete(RECEIVER, None if run is None else [run]):
                if time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(next(pause))
        except TimeoutError:
            raise Retry("the store is behind: the values are safe and can be read later", after=5.0) from None
        except EngineError as error:
            raise Retry(f"the store is failing: {error}", after=5.0) from error

    def listed(self, row: RunRow) -> "_Listed":
        """Return a run with what its client said of it, and with its fields for filters."""
        found = self._runs.of_run(row.project, row.id)
        about = None if found is None else found.about
        return _Listed(row, about, _fields(row, about, self._state(row)))

    def _state(self, row: RunRow) -> str:
        """Return the state of a run, in W&B's words."""
        state = self._states.state(row)
        return _STATES.get(state, state)

    def _find(self, project: str, given: Given, caller: Caller) -> Node | None:
        row, tracked = self._row(project, str(given.get("name") or ""))
        return None if row is None else self._run(row, tracked, caller)

    def _row(self, project: str, name: str) -> tuple[RunRow | None, TrackedRun | None]:
        """Return a run by its id at W&B, and what its client said of it."""
        tracked = self._runs.find(project, name) if name else None
        id = tracked.about.run if tracked is not None else name
        self._wait(id)
        rows = [row for row in list_runs(self._engine(), ids=[id]) if row.project == project]
        return rows[0] if rows else None, None if tracked is None else tracked.about

    def _run(self, row: RunRow, about: TrackedRun | None, caller: Caller) -> Node:
        caller.cost.check()
        known = about or TrackedRun(project=row.project, id=row.id, run=row.id, created=row.created)

        @cache
        def history() -> RunHistory:
            caller.cost.read()
            return RunHistory(self._engine(), row.number, row.started)

        tags = [tag_text(name, value) for name, value in row.tags.items()]
        return {
            **bucket(known, caller.entity),
            "projectId": project_number(row.project),
            "displayName": row.name or known.id,
            "notes": row.notes,
            "tags": tags,
            "config": known.config if about is not None else _config(row),
            "summaryMetrics": lambda given: json.dumps(history().last_values()) if about is None else about.summary,
            "systemMetrics": "{}",
            "state": self._state(row),
            "group": row.group or None,
            "jobType": row.job_type or None,
            "commit": known.commit or None,
            "host": ", ".join(row.hosts) or None,
            "readOnly": False,
            "createdAt": stamp(known.created),
            "heartbeatAt": stamp(row.received),
            "user": {"name": "stepscope", "username": "stepscope"},
            "historyLineCount": lambda given: history().last_step() + 1,
            "historyKeys": lambda given: _history_keys(history()),
            "history": lambda given: [json.dumps(each) for each in _rows_of(history(), given)],
            "sampledHistory": lambda given: [_sampled(history(), read_spec(each)) for each in items(given, "specs")],
            "events": lambda given: [json.dumps(each) for each in history().machine_rows(_samples(given))],
            "parquetHistory": lambda given: {"parquetUrls": [], "liveData": _live(history(), given)},
            "fileCount": lambda given: len(list_files(self._folder(known))),
            "files": lambda given: self._files(known, given, caller),
            **self._artifacts.of_run(row.project, known.id, caller),
        }

    def _folder(self, about: TrackedRun) -> Any:
        return self._runs.folder(about.project, "runs", about.id) / "files"

    def _files(self, about: TrackedRun, given: Given, caller: Caller) -> Node:
        names, pattern = items(given, "names") or items(given, "fileNames"), given.get("pattern")
        base = f"{caller.base}/files/{quote(caller.entity, safe='')}/{quote(about.project, safe='')}/{quote(about.id)}"
        found = [
            {
                "__typename": "File",
                "id": write_id("RunFile", about.project, about.id, each.name),
                "name": each.name,
                "displayName": each.name,
                "url": f"{base}/{quote(each.name)}",
                "directUrl": self._links.make(caller.base, each.name, "run", about.project, about.id, each.name),
                "sizeBytes": each.size,
                "mimetype": mimetypes.guess_type(each.name)[0] or "application/octet-stream",
                "updatedAt": stamp(int(each.changed * 1e9)),
                "md5": None,
            }
            for each in list_files(self._folder(about))
            if (not names or each.name in names)
            and (not isinstance(pattern, str) or fnmatch.fnmatchcase(each.name, pattern.replace("%", "*")))
        ]
        return {**connection(found, given), "uploadHeaders": caller.upload_headers}


class _Listed(NamedTuple):
    """A run of a list."""

    row: RunRow
    about: TrackedRun | None
    fields: Mapping[str, Any]


class _Lists:
    """The lists of runs in one request, each read once however often it is selected."""

    def __init__(self, queries: RunQueries, caller: Caller) -> None:
        self.caller = caller
        self.rows = cache(queries.rows)
        self._listed = cache(lambda project: [queries.listed(row) for row in self.rows(project) if not row.archived])

    def chosen(self, project: str, given: Given) -> list[_Listed]:
        """Return the runs of a project that match the filters, in order."""
        self.caller.cost.list()
        filters, check = read_filters(given.get("filters")), self.caller.cost.check
        found = [each for each in self._listed(project) if matches(filters, each.fields, check=check)]
        key, down = sort_key(str(given.get("order") or "+created_at"))
        return sorted(found, key=lambda each: key(each.fields), reverse=down)


def _fields(row: RunRow, about: TrackedRun | None, state: str) -> Mapping[str, Any]:
    return {
        "name": about.id if about is not None else row.id,
        "display_name": row.name,
        "state": state,
        "tags": [tag_text(name, value) for name, value in row.tags.items()],
        "group": row.group or None,
        "job_type": row.job_type or None,
        "notes": row.notes,
        "created_at": stamp(row.created if about is None else about.created, "microseconds"),
        "heartbeat_at": stamp(row.received),
        "duration": max(row.seen - row.started, 0) / 1e9,
        "username": "stepscope",
        "config": plain_config(about.config) if about is not None else row.beginning.get("config") or {},
        "summary_metrics": json.loads(about.summary) if about is not None else {},
    }


def _config(row: RunRow) -> str:
    config = row.beginning.get("config")
    items = config.items() if isinstance(config, Mapping) else ()
    return json.dumps({key: {"value": value, "desc": None} for key, value in items}, default=str)


def _history_keys(history: RunHistory) -> JsonValue:
    keys = {key: {"typeCounts": [{"type": "number"}]} for key in (*history.keys, "_step", "_timestamp", "_runtime")}
    return JsonValue(keys=keys, lastStep=history.last_step(), sets=[])


def _samples(given: Given) -> int:
    samples = given.get("samples")
    return samples if isinstance(samples, int) and samples > 0 else 500


def _step(given: Given, name: str) -> int | None:
    value = given.get(name)
    return int(value) if isinstance(value, (int, float)) and abs(value) < 2**62 else None


def _rows_of(history: RunHistory, given: Given) -> list[dict[str, Any]]:
    return history.rows((), _step(given, "minStep"), _step(given, "maxStep"), _samples(given))


def _sampled(history: RunHistory, spec: Given) -> list[dict[str, Any]]:
    listed = spec.get("keys")
    keys = [key for key in listed if isinstance(key, str)] if isinstance(listed, list) else []
    own = ("_step", "_timestamp", "_runtime")
    stored = {key: _stored_key(history, key) for key in keys}
    wanted = [stored[key] for key in keys if key not in own]
    low, high, samples = _step(spec, "minStep"), _step(spec, "maxStep"), _samples(spec)
    if low is not None and high is not None and samples == high - low + 1:
        high += 1  # newer clients send the last step of a page, older ones the step after it
    rows = history.rows(wanted, low, high, samples)
    found = [{key: row[stored[key]] for key in keys if stored[key] in row} for row in rows] if keys else rows
    return [plain(row) for row in found]  # NaN as a word: newer clients parse these rows as strict JSON


def _stored_key(history: RunHistory, key: str) -> str:
    """Return the key of a nested value, which W&B joins with dots, as it is stored."""
    joined = key.replace(".", "/")
    return joined if key not in history.keys and joined in history.keys else key


def _live(history: RunHistory, given: Given) -> list[JsonValue]:
    keys = [key for key in items(given, "liveKeys") if isinstance(key, str)]
    if set(keys) == {"_step"}:  # sent before a scan: values need not be read
        return [JsonValue(_step=step) for step in history.steps()]
    return [JsonValue(row) for row in _sampled(history, {"keys": keys, "samples": 10**6})]
