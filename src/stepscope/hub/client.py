"""Queries to a hub: over HTTP to the one that has a home folder open, else to its engine in this process."""

import contextlib
import getpass
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from stepscope.hub.home import HubHome, address_of
from stepscope.journal import layout
from stepscope.journal.atomic_files import holder
from stepscope.journal.resolve_run import LATEST, PROBES, UnknownRun, choose, find_run, run_times
from stepscope.model.errors import ConfigError, StepscopeError
from stepscope.model.formatting import size
from stepscope.model.names import PARTIAL_HEADER

TOKEN_VARIABLE = "STEPSCOPE_TOKEN"
USER_HEADER = "X-Stepscope-User"
"""The header in which a command names its user."""
CATCH_UP_SECONDS = 600.0
_CHUNK = 1 << 20


def user() -> str:
    """The user of this process, for the record of an edit: NAME@HOST."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        name = str(os.getuid())
    return f"{name}@{os.uname().nodename}"


class HubError(StepscopeError):
    """The hub did not answer."""


@contextlib.contextmanager
def open_client(home: Path, timeout: float = 60.0, only: str | None = None) -> Iterator["HubClient"]:
    """Open a client of the hub, or of its engine after it read the home's journals, or those of `only` one run."""
    await_hub(home)
    remote = open_http_client(home, timeout)
    if remote is not None:
        yield remote
        return
    with _opened(home, only) as client:
        yield client


def open_http_client(home: Path, timeout: float = 60.0) -> "HttpClient | None":
    """A client of the hub that has a home folder open; None when none does."""
    address = address_of(home)
    return None if address is None else HttpClient(address, os.environ.get(TOKEN_VARIABLE, ""), timeout)


STARTING_SECONDS = 30.0


def await_hub(
    home: Path, clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
) -> None:
    """Wait while another process opens the hub's folder: until a hub answers, or a command is done; 30 s at most."""
    until = clock() + STARTING_SECONDS
    while (held := holder(home / "hub" / "lock")) is not None and " " not in held and clock() < until:
        pause(PAUSE_SECONDS)


class HttpClient:
    """Queries a hub over HTTP."""

    problem = ""
    """Empty: a hub reports missing records itself, in its health."""

    def __init__(
        self,
        address: str,
        token: str = "",
        timeout: float = 60.0,
        warn: Callable[[str], object] = lambda text: sys.stderr.write(text + "\n"),
    ) -> None:
        self._address = address.rstrip("/")
        self._warn, self._missing = warn, ""
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout = timeout

    def get(self, path: str, **params: Any) -> Any:
        """GET JSON."""
        return self._json(path, params)

    def post(self, path: str, body: Any) -> Any:
        """POST JSON and return JSON."""
        return self._json(path, {}, json.dumps(body).encode())

    def change(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """Change something, with a JSON body where needed."""
        return self._json(path, params, None if body is None else json.dumps(body).encode(), method)

    def copy(self, out: BinaryIO, path: str, **params: Any) -> int:
        """Write the answer to a file and return its size."""
        size = 0
        with self._open(path, params) as answer:
            while part := answer.read(_CHUNK):
                size += out.write(part)
        return size

    def events(self, path: str, **params: Any) -> Iterator[tuple[str, Any]]:
        """Yield server-sent events as names and data, until the hub ends the stream."""
        with self._open(path, params) as answer:
            name = ""
            try:
                for line in answer:
                    field, _, value = line.decode().rstrip("\n").partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data":
                        yield name, json.loads(value)
            except OSError as error:
                raise HubError(f"the hub at {self._address} closed the connection: {error}") from None

    def _json(self, path: str, params: Mapping[str, Any], body: bytes | None = None, method: str | None = None) -> Any:
        with self._open(path, params, body, method) as answer:
            try:
                return _complete(json.load(answer))
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise HubError(f"the hub at {self._address} sent an incomplete response: {error}") from None

    def _open(self, path: str, params: Mapping[str, Any], body: bytes | None = None, method: str | None = None) -> Any:
        inside = {name: urllib.parse.quote(str(value), safe="") for name, value in params.items() if _in(path, name)}
        query = urllib.parse.urlencode([pair for pair in _pairs(params) if not _in(path, pair[0])])
        url = self._address + path.format(**inside) + (f"?{query}" if query else "")
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        if method is not None:
            headers = {**headers, USER_HEADER: user()}
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            raise HubError(self._error_text(error)) from None
        except OSError as error:
            raise HubError(f"the hub at {self._address} does not answer: {error}") from None
        self._note_partial(answer.headers.get(PARTIAL_HEADER, ""))
        return answer

    def _note_partial(self, missing: str) -> None:
        """Say once that answers lack shards of the store."""
        if missing and missing != self._missing:
            self._warn(f"stepscope: the answer lacks {missing} of the store, which does not answer")
        self._missing = missing

    def _error_text(self, error: urllib.error.HTTPError) -> str:
        try:
            message = str(json.load(error)["error"]["message"])
        except (ValueError, KeyError, TypeError, OSError):
            message = str(error)
        needed = f"; set {TOKEN_VARIABLE} to a token of it" if error.code == 401 else ""
        return f"the hub at {self._address}: {message}{needed}"


def _complete(answer: Any) -> Any:
    """Return an answer; HubError when it ended early."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        raise HubError(str(error.get("message")))
    return answer


def _in(path: str, name: str) -> bool:
    return f"{{{name}}}" in path


def _pairs(params: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The given parameters as text; lists are repeated."""
    pairs = []
    for name, value in params.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        pairs += [(name, str(each)) for each in values if each is not None]
    return pairs


class LocalClient:
    """Queries an engine in this process."""

    def __init__(self, reader: Any, problem: str = "") -> None:
        self._reader, self.problem = reader, problem

    def get(self, path: str, **params: Any) -> Any:
        """GET JSON."""
        return self._json(path, params)

    def post(self, path: str, body: Any) -> Any:
        """POST JSON and return JSON."""
        return self._json(path, {}, json.dumps(body).encode(), "POST")

    def copy(self, out: BinaryIO, path: str, **params: Any) -> int:
        """Write the answer to a file and return its size."""
        return sum(out.write(piece) for piece in self._pieces(path, params))

    def change(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """Change something, with a JSON body where needed."""
        return self._json(path, params, None if body is None else json.dumps(body).encode(), method)

    def _json(self, path: str, given: Mapping[str, Any], body: bytes | None = None, method: str = "GET") -> Any:
        return _complete(json.loads(b"".join(self._pieces(path, given, body, method))))

    def _pieces(
        self, path: str, given: Mapping[str, Any], body: bytes | None = None, method: str = "GET"
    ) -> Iterator[bytes]:
        from stepscope.hub.questions.openapi import endpoint_of
        from stepscope.hub.questions.toolbox.endpoint import StoredFile, Stream, check, encode_answer
        from stepscope.hub.refusals import Refused
        from stepscope.hub.store.engine import MissingShards

        endpoint = endpoint_of(path, method)
        try:
            checked = check(endpoint.params, {}, _pairs(given), attrs=endpoint.attrs)
            found = endpoint.answer(self._reader, checked if body is None else {**checked, "body": body})
            if isinstance(found, StoredFile):
                yield from found.pieces()
            else:
                yield from found.pieces if isinstance(found, Stream) else [encode_answer(found, MissingShards())]
        except Refused as refused:
            raise HubError(str(refused)) from None


HubClient: TypeAlias = HttpClient | LocalClient
"""Sends queries; `path` is one of the API's, with its parameters in braces.

`problem` says why the answers lack the newest records; it is empty when they do not.
"""


@contextlib.contextmanager
def _opened(home: Path, only: str | None) -> Iterator[LocalClient]:
    try:
        from stepscope.hub.home_store import open_home_store, store_address
        from stepscope.hub.questions.toolbox.endpoint import Reader
        from stepscope.hub.security.tokens import Tokens
        from stepscope.hub.service import Hub, HubOptions
    except ImportError as error:
        raise ConfigError(f"this needs the hub's packages: pip install 'stepscope[hub]' ({error.name})") from error
    if not home.is_dir():
        raise ConfigError(f"there is no folder {home}")
    with contextlib.ExitStack() as undo:
        place = HubHome(home)
        undo.callback(place.close)
        store = open_home_store(place, store_address())
        undo.callback(store.close)
        hub = Hub(HubOptions(home=home, only_run=only), place, store, Tokens(place.tokens))
        undo.pop_all()
        undo.callback(hub.close, 0.1)
        # The pump's way to stop is to move everything there is.
        hub.pump.start()
        hub.pump.stop(CATCH_UP_SECONDS)
        hub.alerting.step()
        reader = Reader(
            engine=store.engine, states=hub.states, edits=hub.edits, alerting=hub.alerting, delete=hub.deletion.delete,
            diagnosed=hub.diagnosing.catch_up, who=user(), files=hub.run_files,
        )  # fmt: skip
        yield LocalClient(reader, hub.pump.problem)


RUNS = "/api/runs"
MOST = 10_000
"""As many runs as one answer has."""
PATIENCE_SECONDS = 10.0
"""How long a hub is given to read the journals that may have the run."""
ANSWER_SECONDS = 10.0
"""How long a hub may take to say which run is the latest, before only journals are looked at."""
PAUSE_SECONDS = 0.1


def resolve_run(
    client: HubClient,
    home: Path,
    text: str,
    *,
    patience: float = PATIENCE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> str:
    """Return the id of a run that the hub has: by its id, a prefix of it, its name, or `latest`.

    `latest` is the run that began last, of all that the hub of the home folder has and of those whose journals are in
    it; without a hub, of those with journals. The probes of `doctor` and runs without records are skipped. A run that
    the hub may not have read yet is waited for.
    """
    until = clock() + patience
    while True:
        try:
            return _of_hub(client, home, text)
        except UnknownRun:
            unread = _unread(client, home, text)
            if not unread:
                raise
            if clock() >= until:
                raise UnknownRun(f"no run {text!r} at the hub of {home} yet: {unread}") from None
        pause(PAUSE_SECONDS)


def expand_latest(home: Path, text: str) -> str:
    """Return the run that `latest` stands for; any other text as it is."""
    client = open_http_client(home, ANSWER_SECONDS) if text == LATEST else None
    if client is None:
        return text
    try:
        return _latest(client, home)
    except HubError:
        return text


def find_anywhere(home: Path, text: str) -> str:
    """Return the id of a run among the journals of a home folder, else among those that only its hub has."""
    text = expand_latest(home, text)
    try:
        return find_run(home, text)
    except UnknownRun as unknown:
        client = open_http_client(home)
        if client is not None:
            with contextlib.suppress(UnknownRun):
                return resolve_run(client, home, text)
        raise unknown


def still_reading(client: HubClient) -> str:
    """Return that the hub is still reading journals, in words; empty when it has read them all."""
    if not isinstance(client, HttpClient):
        return ""
    try:
        folder = client.get("/api/health")["folder"]
    except HubError:
        return ""
    if not folder["reading"]:
        return ""
    left = folder["unread_bytes"]
    return "the hub is still reading journals" + (f", {size(left)} are left" if left else "")


def _of_hub(client: HubClient, home: Path, text: str) -> str:
    if text == LATEST:
        found = _latest(client, home)
        if isinstance(client, HttpClient) and _began(client, found) is None:
            raise UnknownRun(f"{found} is the latest run in {home}")
        return found
    rows = client.get(RUNS, limit=MOST, sort="-started", archived="show")["runs"]
    names = {row["id"]: row["name"] for row in sorted(rows, key=lambda row: row["id"] == PROBES)}
    if len(rows) == MOST and text not in names and _began(client, text) is not None:
        return text
    return choose(text, list(names), names.get, str(home))


def _latest(client: HubClient, home: Path) -> str:
    """Return the run that began last: a journal that the hub has not read yet counts from when its folder was made."""
    here = {run: ns for run, ns in run_times(home).items() if run != PROBES and layout.list_writers(home, run)}
    newest = max(here, key=lambda run: (here[run], run), default=None)
    if newest is not None and not isinstance(client, HttpClient):
        return newest
    rows = client.get(RUNS, limit=2, sort="-started", archived="show")["runs"]
    began = {str(row["id"]): row["started"] or 0.0 for row in sorted(rows, key=lambda row: row["id"] == PROBES)[:1]}
    if newest is not None and newest not in began:
        at = _began(client, newest)  # older than the listed ones, or read since
        began[newest] = here[newest] / 1e9 if at is None else at
    if not began:
        raise UnknownRun(f"there are no runs in {home}")
    return max(began, key=lambda run: began[run])


def _unread(client: HubClient, home: Path, text: str) -> str:
    """Return, in words, that the hub may not have read the run yet; empty when it has read all there is."""
    if not isinstance(client, HttpClient):
        return ""
    if reading := still_reading(client):
        return reading
    try:
        run = find_run(home, text)
    except UnknownRun:
        return ""
    return f"the hub has not read the journals of {run}" if run != PROBES else ""


def _began(client: HubClient, id: str) -> float | None:
    """Return when a run began that may be older than all listed ones; None while the hub does not know it."""
    try:
        return float(client.get(f"{RUNS}/{{run}}", run=id)["started"] or 0.0)
    except HubError:
        return None
