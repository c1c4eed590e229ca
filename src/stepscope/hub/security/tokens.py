"""Tokens: a secret for its holder, a hash for the file, scopes, perhaps a project, a run, an end and a rate limit."""

import hashlib
import hmac
import math
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from stepscope.journal.atomic_files import FileLock, replace_file
from stepscope.model.errors import ConfigError

Scope = Literal["ingest", "read", "share", "control", "admin"]
"""`share` is reading one run through the JSON API, and nothing else."""
PREFIX = "sst"
LOCK = "tokens.lock"
"""The file that is locked while the tokens are changed."""
_LOOK_SECONDS = 1.0


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as stored; its secret has 256 random bits, so one round of SHA-256 suffices."""

    id: str
    hash: str
    scopes: tuple[Scope, ...]
    project: str | None = None
    name: str = ""
    created: float = 0.0
    requests: float | None = None
    """Requests per second; None for the hub's default."""
    run: str | None = None
    """The only run it may read; it has no scope but `share` then."""
    expires: float | None = None
    """When it ends, in seconds since 1970; None for never."""

    def allows(self, scope: Scope) -> bool:
        """Return whether it grants a scope; an admin token grants all."""
        return scope in self.scopes or "admin" in self.scopes


_decode = msgspec.json.Decoder(list[Token]).decode


class Tokens:
    """The tokens of a hub, in a file readable only by its owner; a running hub sees changes within a second."""

    def __init__(
        self, path: Path, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._clock, self._wall = clock, wall
        self._stamp: tuple[int, int] | None = None
        self._next_look = 0.0
        self._tokens: dict[str, Token] = {}
        self._watched = False
        self._ended = threading.Event()
        self._refresh()

    def watch(self) -> None:
        """Check for changes on a thread, so that no request waits for the disk; `close` ends it."""
        self._watched = True
        threading.Thread(target=self._follow, name="stepscope-tokens", daemon=True).start()

    def close(self) -> None:
        """Stop the thread."""
        self._ended.set()

    def _follow(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._look()

    def all(self) -> list[Token]:
        """List the tokens, the oldest first."""
        self._refresh()
        return sorted(self._tokens.values(), key=lambda token: token.created)

    def lasting(self) -> list[Token]:
        """List the tokens that have not ended, the oldest first."""
        return [token for token in self.all() if not self._has_ended(token)]

    def are_bound(self) -> bool:
        """Return whether one of them is for one project only."""
        return any(token.project for token in self.all())

    def find(self, text: str) -> Token | None:
        """Find a token by the text that a client sent; None when it is unknown."""
        self._refresh()
        prefix, _, rest = text.partition("_")
        token_id, _, secret = rest.partition("_")
        token = self._tokens.get(token_id) if prefix == PREFIX else None
        expected = token.hash if token is not None else "0" * 64
        same = hmac.compare_digest(_hash(secret), expected)
        return token if same and token is not None and not self._has_ended(token) else None

    def _has_ended(self, token: Token) -> bool:
        return token.expires is not None and self._wall() >= token.expires

    def knows(self, token: Token) -> bool:
        """Return whether a token is unchanged since it was found."""
        self._refresh()
        return self._tokens.get(token.id) == token and not self._has_ended(token)

    def create(
        self,
        scopes: Iterable[Scope],
        *,
        project: str | None = None,
        name: str = "",
        requests: float | None = None,
        run: str | None = None,
        seconds: float | None = None,
    ) -> tuple[Token, str]:
        """Create a token, which ends after some seconds if given; its text is shown once and not stored.

        Tokens that have ended are removed.
        """
        secret = secrets.token_hex(32)
        token = Token(
            id=secrets.token_hex(4),
            hash=_hash(secret),
            scopes=tuple(dict.fromkeys(scopes)),
            project=project,
            name=name,
            created=self._wall(),
            requests=requests,
            run=run,
            expires=None if seconds is None else self._wall() + seconds,
        )
        self.change([token], [each.id for each in self.all() if self._has_ended(each)])
        return token, f"{PREFIX}_{token.id}_{secret}"

    def revoke(self, token_id: str) -> bool:
        """Remove a token; False when there is none with this id."""
        return self.change((), [token_id])

    def change(self, added: Iterable[Token], removed: Iterable[str]) -> bool:
        """Add and remove tokens; False when nothing changes. Other processes may change the file at the same time."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(self._path.with_name(LOCK), wait=True):
            self._look()
            tokens = self._tokens | {token.id: token for token in added}
            for token_id in removed:
                tokens.pop(token_id, None)
            if tokens == self._tokens:
                return False
            data = msgspec.json.format(msgspec.json.encode(list(tokens.values())), indent=2)
            replace_file(self._path, data, fsync=True)
            self._tokens, self._stamp = tokens, None
            return True

    def reread(self) -> dict[str, Token] | None:
        """Read the file if it changed, and return the tokens by id; None where there is no file."""
        self._look()
        return self._tokens if self._path.exists() else None

    def __bool__(self) -> bool:
        self._refresh()
        return bool(self._tokens)

    def _refresh(self) -> None:
        now = self._clock()
        if self._watched or (self._stamp is not None and now < self._next_look):
            return
        self._next_look = now + _LOOK_SECONDS
        self._look()

    def _look(self) -> None:
        try:
            found = os.stat(self._path)
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._stamp:
                self._tokens = {token.id: token for token in _decode(self._path.read_bytes())}
                self._stamp = stamp
        except (FileNotFoundError, NotADirectoryError):
            if self._stamp not in (None, (0, 0)):
                return  # a file that vanishes opens no door: the tokens known stay until the hub starts again
            self._stamp = (0, 0)
        except (OSError, ValueError) as error:
            if self._stamp is None:
                text = f"the tokens in {self._path} cannot be read ({error}); fix or remove the file"
                raise ConfigError(text) from error


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


_BURST_SECONDS = 2.0
_SHORTEST, _LONGEST = 0.001, 3600.0
"""Limits of the Retry-After that clients get, in seconds."""
_MAX_ELSEWHERE = 10_000


Passed = dict[str, tuple[int, float]]
"""How many requests with each token passed, and its rate."""


class RateLimits:
    """The token buckets of all tokens. Used by the event loop; `add_elsewhere` may be called on any thread."""

    def __init__(self, default: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = default
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._passed: Passed = {}
        self._elsewhere: deque[tuple[str, int, float, float]] = deque(maxlen=_MAX_ELSEWHERE)
        """What other hubs let pass: token, requests, rate, and when that was known here."""

    def take(self, token: str, rate: float | None = None) -> float:
        """Count one request; return 0 when it may pass, else the seconds until the next may.

        None means the default rate. A rate of 0 or less admits nothing: clients get a Retry-After of an hour.
        """
        rate = self._default if rate is None else rate
        if not rate > 0:
            return _LONGEST
        if rate == math.inf:
            return 0.0
        while self._elsewhere:
            self._spend(*self._elsewhere.popleft())
        now = self._clock()
        if (left := self._left(token, rate, now)) < 1.0:
            self._buckets[token] = (left, now)
            return min(max((1.0 - left) / rate, _SHORTEST), _LONGEST)
        self._buckets[token] = (left - 1.0, now)
        self._passed[token] = (self._passed.get(token, (0, rate))[0] + 1, rate)
        return 0.0

    def passed(self) -> Passed:
        """Return what passed since the last call, for the other hubs on the same store."""
        found, self._passed = self._passed, {}
        return found

    def add_elsewhere(self, passed: Passed) -> None:
        """Count what another hub let pass: a rate is that of all hubs together."""
        now = self._clock()
        self._elsewhere.extend((token, count, rate, now) for token, (count, rate) in passed.items())

    def _spend(self, token: str, count: int, rate: float, at: float) -> None:
        left = self._left(token, rate, at) - count
        self._buckets[token] = (max(left, -rate * _BURST_SECONDS), at)

    def _left(self, token: str, rate: float, now: float) -> float:
        most = max(rate * _BURST_SECONDS, 1.0)
        left, before = self._buckets.get(token, (most, now))
        return min(left + max(now - before, 0.0) * rate, most)
