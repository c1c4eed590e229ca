"""The address of a ClickHouse server or cluster: `clickhouse://user:password@a,b:9000/database?cluster=name`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from stepscope.model.errors import ConfigError

SCHEMES = {"clickhouse": 9000, "clickhouses": 9440}
"""Without and with TLS, and the usual port of each."""
EXAMPLE = "clickhouse://user:password@host-a,host-b:9000/stepscope?cluster=main"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:/@?#\s]+))(?::(?P<port>\d+))?")
_MEGA = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is and how to reach it. The password is in no text that is made of this."""

    hosts: tuple[tuple[str, int], ...]
    database: str = "stepscope"
    user: str = "default"
    password: str = field(default="", repr=False)
    secure: bool = False
    verify: bool = True
    """Whether the server's certificate must be valid."""
    ca: str = ""
    """A file with the certificates to trust instead of the system's."""
    cluster: str = ""
    """The name of a cluster of the server's configuration; empty for one server."""
    connect_timeout: float = 5.0
    timeout: float = 300.0
    """Seconds without a byte from the server after which a statement has failed."""
    memory: int = 2048 * _MEGA
    """Bytes that one query may use on a server."""
    threads: int = 4
    """Threads of one query, and queries that are asked at once."""
    sql_user: str = ""
    """The database user that runs user-supplied queries; empty for the same as everything else."""
    sql_password: str = field(default="", repr=False)
    silence: float = 60.0
    """Seconds without a byte after which a server that answers a SELECT or takes rows counts as hung."""
    lease: int = 15
    """Seconds for which a hub that does not answer keeps the shards that it writes to."""

    def __str__(self) -> str:
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        scheme = "clickhouses" if self.secure else "clickhouse"
        cluster = f"?cluster={self.cluster}" if self.cluster else ""
        return f"{scheme}://{self.user}@{hosts}/{self.database}{cluster}"


def of_sql_user(address: Address) -> Address:
    """The same address for the connections of user-supplied queries."""
    if not address.sql_user:
        return address
    return replace(address, user=address.sql_user, password=address.sql_password)


def is_address(text: str) -> bool:
    """Return whether a text is an address rather than a folder."""
    return text.partition("://")[0] in SCHEMES


def parse(text: str) -> Address:
    """Read an address; ConfigError, without its password, when it is wrong."""
    try:
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise ConfigError(f"the store's address cannot be read: write it as {EXAMPLE}") from error
    if parts.scheme not in SCHEMES or parts.fragment:
        raise ConfigError(f"the store's address must look like {EXAMPLE}")
    access, _, places = parts.netloc.rpartition("@")
    user, _, password = access.partition(":")
    return Address(
        hosts=_hosts(places, SCHEMES[parts.scheme]),
        database=_name("database", parts.path.strip("/") or "stepscope"),
        user=unquote(user) or "default",
        password=unquote(password),
        secure=parts.scheme == "clickhouses",
        **_options(options),
    )


def _hosts(text: str, usual: int) -> tuple[tuple[str, int], ...]:
    """The hosts; one without a port has that of the last host."""
    found = [_HOST.fullmatch(each) for each in text.split(",")]
    if not all(found):
        raise ConfigError(f"the store's address must name its hosts as host:port,host:port: {EXAMPLE}")
    shared = found[-1]["port"] if found[-1] else None
    hosts = [(each["v6"] or each["name"], int(each["port"] or shared or usual)) for each in found if each]
    if any(not 0 < port < 65536 for _, port in hosts):
        raise ConfigError("a port of the store's address is not between 1 and 65535")
    return tuple(dict.fromkeys(hosts))


def _name(what: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(f"the {what} of the store's address must be letters, digits and underscores, got {text!r}")
    return text


def _options(given: Mapping[str, str]) -> dict[str, Any]:
    """The options behind the question mark, checked."""
    readers: dict[str, Callable[[str], Any]] = {
        "cluster": lambda text: _name("cluster", text),
        "ca": str,
        "verify": lambda text: {"0": False, "1": True}[text],
        "connect_timeout": _positive,
        "timeout": _positive,
        "memory": lambda text: int(_positive(text)),
        "threads": lambda text: int(_positive(text)),
        "sql_user": str,
        "sql_password": str,
        "lease": lambda text: max(int(_positive(text)), 3),
    }
    if unknown := sorted(set(given) - set(readers)):
        raise ConfigError(f"the store's address has no option {unknown[0]!r}; known are {', '.join(readers)}")
    found: dict[str, Any] = {}
    for name, text in given.items():
        try:
            found[name] = readers[name](text)
        except ConfigError:
            raise
        except (KeyError, ValueError) as error:
            raise ConfigError(f"the option {name} of the store's address cannot be {text!r}") from error
    return found


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number
