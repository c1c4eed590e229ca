"""The Datadog sink: to an Agent as DogStatsD, or without one to the HTTP intake."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from stepscope.dialects.datadog.sink.agent_socket import Address, Agent, most_bytes_of
from stepscope.dialects.datadog.wire.items import tag
from stepscope.dialects.datadog.wire.translate import Spelling, Translator
from stepscope.extend.sink import OWN_RECORDS, check_address, convert, sendable, without_secrets
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Sink

SITE = "datadoghq.com"
_SOCKET_SCHEMES = ("unix", "unixstream", "unixgram")
_TAG_VARIABLES = (("env", "DD_ENV"), ("service", "DD_SERVICE"), ("version", "DD_VERSION"))
_FROM_ENV = {
    "api_key": ("DD_API_KEY", "DATADOG_API_KEY"),
    "site": ("DD_SITE",),
    "service": ("DD_SERVICE",),
    "url": ("DD_DD_URL", "DD_URL"),
}


class Datadog(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transport, destination, and the spelling of names."""

    transport: Literal["auto", "dogstatsd", "http"] = "auto"
    host: str | None = None
    port: int | None = None
    socket: str | None = None
    api_key: str | None = None
    site: str = SITE
    url: str | None = None
    logs_url: str | None = None
    namespace: str = "stepscope"
    tags: tuple[str, ...] = ()
    run_tag: bool = False
    rank_tag: bool = True
    service: str = ""
    plain: bool = False
    max_bytes: int | None = None
    timeout: float = 10.0

    remote: ClassVar[bool] = True
    excluded: ClassVar[tuple[str, ...]] = OWN_RECORDS

    @classmethod
    def read(cls, options: Mapping[str, Any], env: Mapping[str, str]) -> "Datadog":
        """Read options and the DD_* variables; an option overrides its variable."""
        variables = {key: _first(env, names) for key, names in _FROM_ENV.items()}
        given = dict(options)
        if isinstance(given.get("tags"), str):
            given["tags"] = _split(given["tags"])
        made = convert("datadog", {**{key: value for key, value in variables.items() if value}, **given}, cls)
        if {"host", "port", "socket"}.isdisjoint(given):
            made = structs.replace(made, **_agent(env))
        tags = tuple(dict.fromkeys((*_env_tags(env), *(tag(each) for each in made.tags))))
        made = structs.replace(made, tags=tags, namespace=made.namespace.strip("."))
        made = structs.replace(made, api_key=sendable("sinks: datadog: api_key", made.api_key))
        made = structs.replace(made, transport=made._chosen())
        made._check()
        return made

    @property
    def place(self) -> str:
        """The Agent's address, or the intake's."""
        return without_secrets(self.intake) if self.transport == "http" else str(self.agent)

    @property
    def agent(self) -> Address:
        """Where the Agent listens."""
        return Address(self.host or "localhost", self.port or 8125, self.socket or "")

    @property
    def intake(self) -> str:
        """The address of the HTTP intake."""
        return self.url or f"https://api.{self.site}"

    @property
    def logs_intake(self) -> str:
        """The address for logs: a separate host, unless an address was given."""
        return self.logs_url or self.url or f"https://http-intake.logs.{self.site}"

    def open(self) -> Sink:
        """Make the sink."""
        spelling = Spelling(
            namespace=self.namespace,
            tags=self.tags,
            run_tag=self.run_tag,
            rank_tag=self.rank_tag,
            service=self.service,
        )
        from stepscope.dialects.datadog.sink.parts import DogStatsdSink, IntakeSink

        if self.transport == "http":
            key = self.api_key or ""
            return IntakeSink(self.intake, self.logs_intake, key, Translator(spelling), timeout=self.timeout)
        agent = Agent(self.agent, self.timeout)
        most = self.max_bytes or most_bytes_of(self.agent)
        translator = Translator(spelling, logs=False)
        return DogStatsdSink(agent, translator, timeout=self.timeout, most_bytes=most, plain=self.plain)

    def _chosen(self) -> Literal["dogstatsd", "http"]:
        """Choose a configured Agent, else the intake if there is a key, else an Agent on this machine."""
        if self.transport != "auto":
            return self.transport
        has_agent = self.host or self.port or self.socket
        return "http" if not has_agent and self.api_key else "dogstatsd"

    def _check(self) -> None:
        if self.transport == "http":
            if not self.api_key:
                raise ConfigError("sinks: datadog: the HTTP intake needs an API key: set `api_key` or DD_API_KEY")
            for url in (self.intake, self.logs_intake):
                check_address("sinks: datadog:", url, "https://HOST, or `site` alone")
        elif find_spec("datadog") is None:
            fix = "pip install 'stepscope[datadog]', or set DD_API_KEY to need no Agent"
            raise ConfigError(f"sinks: datadog: DogStatsD needs Datadog's client: {fix}")
        elif self.port is not None and not 0 < self.port < 65536:
            raise ConfigError(f"sinks: datadog: port {self.port} is not valid; use 1 to 65535")
        elif self.max_bytes is not None and not 128 <= self.max_bytes <= 65_000:
            raise ConfigError("sinks: datadog: max_bytes is the size of a datagram, 128 to 65000")


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((env[name].strip() for name in names if env.get(name, "").strip()), "")


def _agent(env: Mapping[str, str]) -> dict[str, Any]:
    """Read where the Agent is: a URL takes precedence, then a socket, then host and port."""
    url = _first(env, ("DD_DOGSTATSD_URL",))
    if url:
        try:
            parts = urlsplit(url)
            if parts.scheme in _SOCKET_SCHEMES:
                return {"socket": url}
            if parts.scheme == "udp" and parts.hostname:
                return {"host": parts.hostname, "port": parts.port or 8125}
        except ValueError:
            pass
        raise ConfigError(f"DD_DOGSTATSD_URL={url!r}: use udp://HOST:PORT, unix:///PATH or unixstream:///PATH")
    path = _first(env, ("DD_DOGSTATSD_SOCKET",))
    if path:
        return {"socket": path}
    found: dict[str, Any] = {}
    if host := _first(env, ("DD_AGENT_HOST",)):
        found["host"] = host
    if port := _first(env, ("DD_DOGSTATSD_PORT",)):
        if not port.isascii() or not port.isdigit():
            raise ConfigError(f"DD_DOGSTATSD_PORT={port!r} is not a port: use 1 to 65535")
        found["port"] = int(port)
    return found


def _env_tags(env: Mapping[str, str]) -> list[str]:
    found = [tag(key, env[name].strip()) for key, name in _TAG_VARIABLES if env.get(name, "").strip()]
    for name in ("DATADOG_TAGS", "DD_TAGS"):
        found += [tag(each) for each in _split(env.get(name, ""))]
    return found


def _split(text: str) -> list[str]:
    """Split tags at commas, else at spaces, as Datadog's variable allows both."""
    parts = text.split(",") if "," in text else text.split()
    return [part.strip() for part in parts if part.strip()]
