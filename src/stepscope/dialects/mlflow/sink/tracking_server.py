"""An MLflow tracking server: its options and variables, calls with their errors classified, experiments and runs."""

import base64
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlencode, urlsplit, urlunsplit

import msgspec

from stepscope.dialects.mlflow import wire as mlflow
from stepscope.dialects.mlflow.wire import API, TRACES, start_tags
from stepscope.extend.sink import (
    Answer,
    Connection,
    Tls,
    convert,
    is_address,
    not_from,
    retry_after,
    sendable,
    without_secrets,
)
from stepscope.model.errors import ConfigError, Retry
from stepscope.model.ports import Writer

DEFAULT = "http://127.0.0.1:5000"
VARIABLES = {
    "uri": "MLFLOW_TRACKING_URI",
    "run_id": "MLFLOW_RUN_ID",
    "username": "MLFLOW_TRACKING_USERNAME",
    "password": "MLFLOW_TRACKING_PASSWORD",
    "token": "MLFLOW_TRACKING_TOKEN",
    "insecure_tls": "MLFLOW_TRACKING_INSECURE_TLS",
    "certificate": "MLFLOW_TRACKING_SERVER_CERT_PATH",
    "client_certificate": "MLFLOW_TRACKING_CLIENT_CERT_PATH",
}
"""Options and MLflow's own variables for them; the experiment has two."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options in `sinks:`; each overrides its variable."""

    uri: str = DEFAULT
    experiment: str | int | None = None
    experiment_id: str | int | None = None
    run_id: str | None = None
    username: str | None = None
    password: str | None = None
    token: str | None = None
    insecure_tls: bool = False
    certificate: str | None = None
    client_certificate: str | None = None
    timeout: float = 30.0
    tags: dict[str, str] = {}
    traces: bool = True


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A tracking server, and the experiment and run to use."""

    uri: str
    experiment: str | None = None
    """A name, or an id; None: named after each run's project."""
    known_as: Literal["name", "id"] | None = None
    """Whether the experiment is an id or a name; by default digits are tried as an id, then as a name."""
    run_id: str | None = None
    """An existing MLflow run, for all records."""
    authorization: str | None = None
    tls: Tls = Tls()
    timeout: float = 30.0
    tags: dict[str, str] = {}
    traces: bool = True


def read_target(options: Mapping[str, Any], env: Mapping[str, str]) -> Target:
    """Read options and MLflow's variables; ConfigError names the fix."""
    variables = {option: env[name] for option, name in VARIABLES.items() if env.get(name)}
    given = convert("mlflow", {**variables, **options}, Options)
    uri, credentials = _address(given.uri)
    experiment, known_as = _experiment(given, env)
    tls = Tls(certificate=given.certificate, client_certificate=given.client_certificate, verify=not given.insecure_tls)
    tls.check()
    return Target(
        uri=uri,
        experiment=experiment,
        known_as=known_as,
        run_id=given.run_id or None,
        authorization=_authorization(given, credentials),
        tls=tls,
        timeout=given.timeout,
        tags=given.tags,
        traces=given.traces,
    )


def _experiment(given: Options, env: Mapping[str, str]) -> tuple[str | None, Literal["name", "id"] | None]:
    """The experiment and whether it is a name or an id: options before variables, names before ids."""
    if given.experiment is not None and given.experiment_id is not None:
        raise ConfigError("sinks: mlflow: give either `experiment` or `experiment_id`")
    found: tuple[tuple[Any, Literal["name", "id"] | None], ...] = (
        (given.experiment_id, "id"),
        (given.experiment, None),
        (env.get("MLFLOW_EXPERIMENT_NAME") or None, "name"),
        (env.get("MLFLOW_EXPERIMENT_ID") or None, "id"),
    )
    for value, known_as in found:
        if value is not None:
            return str(value) or None, known_as
    return None, None


def _address(uri: str) -> tuple[str, tuple[str, str] | None]:
    """Check an address; remove credentials and the path of the API."""
    if not is_address(uri):
        shown = without_secrets(uri)
        raise ConfigError(
            f"sinks: mlflow: uri {shown!r} is not a tracking server; use http://HOST:PORT, for a database or folder "
            "start one: mlflow server --backend-store-uri sqlite:///mlflow.db"
        )
    parts = urlsplit(uri)
    path = parts.path.rstrip("/").removesuffix(TRACES).removesuffix("/api/2.0/mlflow").rstrip("/")
    found = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return without_secrets(urlunsplit((parts.scheme, parts.netloc, path, "", ""))), found


def _authorization(given: Options, credentials: tuple[str, str] | None) -> str | None:
    """Basic where there is a name, else Bearer, in MLflow's order."""
    if given.username and given.password:
        credentials = given.username, given.password
    if credentials is not None:
        return "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
    token = sendable("sinks: mlflow: token", given.token)
    return f"Bearer {token}" if token else None


MAX_ANSWER = 64 * 1024 * 1024
"""Size limit of responses: that for a run has all its params and the latest value of every metric."""
WAIT = frozenset({429, 503})
UNCLEAR = frozenset({502, 504})
"""Statuses of a gateway: the server may or may not have processed the request."""
AGENT = "Stepscope"
SERVICE = "an MLflow server"
OVER = "slow: the time limit of one delivery is over; it continues"


class NoAnswer(Retry):
    """The outcome of a request is unknown."""


class NoRestApi(Retry):
    """The server has no MLflow REST API: it may be a plain collector of traces."""


class Refused(Exception):
    """The server rejected a request."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"HTTP {status}: {message[:300]}".rstrip(": "))
        self.status, self.code, self.message = status, code, message

    @property
    def is_absent(self) -> bool:
        """Whether the named object does not exist, or was deleted."""
        return self.code == "RESOURCE_DOES_NOT_EXIST" or "must be in the 'active'" in self.message

    @property
    def is_no_api(self) -> bool:
        """Whether the path does not exist and the response is not MLflow's."""
        return self.status in (404, 405, 501) and not self.code

    @property
    def blames_a_record(self) -> bool:
        """Whether the content may be the cause, rather than credentials or address."""
        return self.status in (400, 413, 422) and not self.is_absent


class Server:
    """One connection to a tracking server. `allow` sets a common time limit for the next calls."""

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = Connection(target.uri, target.tls)
        self._root = urlsplit(target.uri).path.rstrip("/")
        self._clock, self._deadline = clock, float("inf")
        self._headers = {"user-agent": AGENT}
        if target.authorization:
            self._headers["authorization"] = target.authorization

    def allow(self, seconds: float) -> None:
        """Set a common time limit for the next calls, in seconds."""
        self._deadline = self._clock() + seconds

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Send a GET request."""
        return _read(self.send("GET", f"{API}{path}?{urlencode(query)}"))

    def post(self, path: str, body: Mapping[str, Any] | bytes, *, once: bool = False) -> dict[str, Any]:
        """Send a POST request; with `once` it is never repeated after a lost connection."""
        packed = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return _read(self.send("POST", f"{API}{path}", packed, {"content-type": "application/json"}, once=once))

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, once: bool = False
    ) -> Answer:
        """Send a request; Refused, Retry when it may be sent again, or NoAnswer when the outcome is unknown."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise Retry(OVER, after=0.0)
        sent = {**self._headers, **(headers or {})}
        try:
            answer = self._connection.ask(method, self._root + path, body, sent, left, most=MAX_ANSWER, once=once)
        except Retry as error:
            raise NoAnswer(str(error)) from error
        if 200 <= answer.status < 300:
            return answer
        refused = _refused(answer)
        if answer.status in WAIT:
            raise Retry(str(refused), retry_after(answer.headers))
        if answer.status in UNCLEAR:
            raise NoAnswer(str(refused), retry_after(answer.headers))
        raise refused

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def retry_of(error: Refused, more: str = "") -> Retry:
    """Convert an error to a Retry."""
    return (NoRestApi if error.is_no_api else Retry)(f"{error}{more}")


def _read(answer: Answer) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise not_from(SERVICE, answer)
    return found


def _refused(answer: Answer) -> Refused:
    if 300 <= answer.status < 400:
        return Refused(
            answer.status, "", f"a redirect to {answer.headers.get('location', 'nowhere')[:200]}, not followed"
        )
    try:
        found = msgspec.json.decode(answer.body)
        code = str(found.get("error_code", ""))
        return Refused(answer.status, code, str(found.get("message") or found.get("detail") or ""))
    except (ValueError, AttributeError):
        text = answer.body[:200].decode("utf-8", "replace")
        return Refused(answer.status, "", "" if "<" in text else text)


class Experiments:
    """The ids of experiments, looked up once, created when missing."""

    def __init__(self, server: Server, target: Target) -> None:
        self._server, self._target = server, target
        self._known: dict[str, str] = {}
        self._is_name = target.known_as == "name"

    @property
    def given(self) -> str | None:
        """The configured id, which needs no lookup; digits count as an id until the server does not know it."""
        wanted = self._target.experiment
        is_id = wanted is not None and wanted.isdecimal() and int(wanted) < 2**63 and not self._is_name
        return wanted if is_id or self._target.known_as == "id" else None

    def find(self, project: str) -> str:
        """The id of the experiment for a project; Retry, with the reason, when there is none."""
        if self._target.known_as == "id" and self._target.experiment:
            return self._target.experiment
        wanted = self._target.experiment or project
        if wanted not in self._known:
            try:
                self._known[wanted] = self._look_up(wanted)
            except Refused as error:
                raise retry_of(error, f" (experiment {wanted!r})") from error
        return self._known[wanted]

    def forget(self) -> None:
        """Look all of them up again; digits that are not an id may be a name."""
        self._known.clear()
        self._is_name = True

    def _look_up(self, wanted: str) -> str:
        if self._target.experiment and self._target.known_as is None and wanted.isdecimal() and int(wanted) < 2**63:
            try:
                return _id(self._server.get("experiments/get", experiment_id=wanted))
            except Refused as error:
                if not error.is_absent:
                    raise
        return self._by_name(wanted) or self._create(wanted)

    def _by_name(self, name: str) -> str | None:
        try:
            return _id(self._server.get("experiments/get-by-name", experiment_name=name))
        except Refused as error:
            if error.is_absent:
                return None
            raise

    def _create(self, name: str) -> str:
        try:
            return str(self._server.post("experiments/create", {"name": name})["experiment_id"])
        except Refused as error:
            if error.code == "RESOURCE_ALREADY_EXISTS":  # another process created it
                found = self._by_name(name)
                if found is not None:
                    return found
            raise


def _id(answer: dict[str, Any]) -> str:
    try:
        found = answer["experiment"]
        if found.get("lifecycle_stage", "active") != "active":
            raise Retry(f"the experiment {found.get('name')!r} was deleted in MLflow: restore it, or name another")
        return str(found["experiment_id"])
    except (KeyError, TypeError, AttributeError):
        raise Retry("the response is not from an MLflow server: check the address") from None


SETTLE_SECONDS = 3.0
"""After a create without a response, how long searches must find nothing before it is repeated."""
FOLLOW_SECONDS = 20.0
"""How long other hosts wait for the host of rank 0 to create the run."""
MAX_SIBLINGS = 100


@dataclass(slots=True)
class Found:
    """A run as MLflow has it."""

    id: str
    experiment: str
    status: str
    attempt: int
    """The newest attempt it was used for; 0 when it was created and never used."""
    creator: str
    start: int
    params: dict[str, str]
    presumed: bool = False
    """Whether its end is only presumed; then `status` is RUNNING here."""


class Runs:
    """The runs of one server. `find` only searches; `open` creates, and deletes what an interrupted create left."""

    def __init__(self, server: Server, target: Target, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._server, self._target, self._clock, self._host = server, target, clock, socket.gethostname()
        self.experiments = Experiments(server, target)
        self._known: dict[str, Found] = {}
        self._asked_at: dict[str, float] = {}
        """When the run of another rank was first searched without success."""
        self._unanswered: dict[str, float] = {}
        """When a create got no response."""

    def find(self, writer: Writer) -> Found | None:
        """Find the run of a writer; None when it does not exist yet, Retry when the server does not respond."""
        known = self._known.get(writer.run)
        if known is None:
            found = self._search(writer)
            if found:
                known = self._known[writer.run] = found[0]
        return known

    def known(self, writer: Writer) -> Found | None:
        """Return the run of a writer if it was found before; no request is made."""
        return self._known.get(writer.run)

    def open(self, writer: Writer, began: int) -> Found:
        """Find the run of a writer, or create it with its start in milliseconds; Retry when neither succeeds."""
        known = self._known.get(writer.run)
        if known is not None:
            return known
        try:
            known = self.settle(writer)
            if known is None:
                self._await_turn(writer)
                self._create(writer, began)
                known = self.settle(writer)  # two may have created it in one moment: both choose the same
        except Refused as error:
            if error.is_absent:
                self.experiments.forget()
            raise Retry(str(error)) from error
        if known is None:
            raise Retry("the run was created, but MLflow does not list it yet")
        self._known[writer.run] = known
        self._unanswered.pop(writer.run, None)
        return known

    def settle(self, writer: Writer) -> Found | None:
        """Choose among all runs with our tag; delete those that were created here and never used."""
        found = self._search(writer)
        for other in found[1:]:
            if not other.attempt and other.creator == self._host:
                self._server.post("runs/delete", {"run_id": other.id})
        return found[0] if found else None

    def forget(self, writer: Writer) -> None:
        """Forget a run that no longer exists."""
        self._known.pop(writer.run, None)

    def _search(self, writer: Writer) -> list[Found]:
        """All runs with our tag, the one to use first: used ones before unused ones, then by age and id."""
        try:
            if self._target.run_id:
                return [_found(self._server.get("runs/get", run_id=self._target.run_id)["run"])]
            query = {
                "experiment_ids": [self.experiments.find(writer.project)],
                "filter": f"tags.\"{mlflow.TAG_RUN}\" = '{mlflow.run_mark(writer.run)}'",
                "max_results": MAX_SIBLINGS,
            }
            found = [_found(each) for each in self._server.post("runs/search", query).get("runs", ())]
        except Refused as error:
            if error.is_absent:
                self.experiments.forget()
            raise retry_of(error) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Retry(f"the response is not from an MLflow server: {error!r}") from error
        return sorted(found, key=lambda each: (not each.attempt, each.start, each.id))

    def _await_turn(self, writer: Writer) -> None:
        """Leave the create to the shipper of rank 0, and wait for one without a response to become visible."""
        now = self._clock()
        if writer.rank and now - self._asked_at.setdefault(writer.run, now) < FOLLOW_SECONDS:
            raise Retry(f"the run {writer.run} is not in MLflow yet: the shipper of rank 0 creates it", after=2.0)
        if now - self._unanswered.get(writer.run, float("-inf")) < SETTLE_SECONDS:
            raise Retry("a create request had no response: waiting to see whether the run exists", after=1.0)

    def _create(self, writer: Writer, began: int) -> None:
        tags = {**self._target.tags, **start_tags(writer, self._host)}
        body = {
            "experiment_id": self.experiments.find(writer.project),
            "start_time": began,
            "run_name": writer.name or writer.run,
            "tags": [{"key": mlflow.legal_key(key), "value": str(value)} for key, value in tags.items()],
        }
        try:
            self._server.post("runs/create", body, once=True)
        except NoAnswer:
            self._unanswered[writer.run] = self._clock()
            raise


def _found(run: dict[str, Any]) -> Found:
    info, data = run["info"], run.get("data", {})
    tags = {each["key"]: each.get("value", "") for each in data.get("tags", ())}
    attempt = str(tags.get(mlflow.TAG_ATTEMPT, ""))
    presumed = attempt != "" and tags.get(mlflow.TAG_PRESUMED) == attempt
    return Found(
        id=str(info["run_id"]),
        experiment=str(info["experiment_id"]),
        status="RUNNING" if presumed else str(info.get("status", "RUNNING")),
        attempt=int(attempt) if attempt.isdigit() else 0,
        creator=str(tags.get(mlflow.TAG_CREATOR, "")),
        start=int(info.get("start_time", 0)),
        params={each["key"]: each.get("value", "") for each in data.get("params", ())},
        presumed=presumed,
    )
