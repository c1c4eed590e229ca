"""The MLflow sink: its options and variables; the runs and the traces of a server are served apart."""

import base64
from collections.abc import Mapping
from typing import Any, ClassVar, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from stepscope.dialects.mlflow.wire import TRACES
from stepscope.extend.sink import SELF_TELEMETRY, Tls, convert, is_address, sendable, without_secrets
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Sink

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


class Mlflow(msgspec.Struct, frozen=True, kw_only=True):
    """A tracking server, and which part to deliver: runs (metrics, params, tags, status) or traces."""

    target: Target
    part: Literal["runs", "traces"] = "runs"

    remote: ClassVar[bool] = True
    excluded: ClassVar[tuple[str, ...]] = (*SELF_TELEMETRY, "kind:log")

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Mlflow":
        """Read options and MLflow's variables."""
        return cls(target=read_target(options, env))

    @property
    def parts(self) -> "tuple[Mlflow, ...]":
        """The same server twice, with a cursor for its runs and one for its traces."""
        return (self, Mlflow(target=self.target, part="traces")) if self.target.traces else (self,)

    @property
    def place(self) -> str:
        """The server, the experiment, and which part."""
        target = self.target
        inside = target.experiment or "experiment by project"
        chosen = f" run {target.run_id}" if target.run_id else ""
        return f"{target.uri} {inside}{chosen} {self.part}"

    @property
    def probes(self) -> tuple[str, ...]:
        """The kinds of record that show whether it works."""
        return ("span",) if self.part == "traces" else ("metric", "event")

    def open(self) -> Sink:
        """Make the sink of the part."""
        from stepscope.dialects.mlflow.sink import parts

        return (parts.TracesSink if self.part == "traces" else parts.MetricsSink)(self.target)
