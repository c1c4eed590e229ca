"""Log anomalies: new errors, bursts of the same message, retry storms."""

import re
from collections import Counter, deque
from typing import ClassVar

from stepscope.diagnosis.detector import Found, RunState
from stepscope.diagnosis.finding import Finding, Kind
from stepscope.model.names import SEVERITIES
from stepscope.model.records import Log

_READ = "Read the lines of that step."
NEW_ERROR = Kind(
    "new_error",
    "ERROR",
    "an error that this run had not logged before",
    _READ,
    next="stepscope tail RUN",
)
BURST = Kind(
    "log_burst",
    "WARN",
    "something fails again and again",
    _READ,
    explains=("new_error",),
    next="stepscope tail RUN",
)
RETRIES = Kind(
    "retry_storm",
    "WARN",
    "a service that the run depends on fails or is overloaded",
    _READ,
    explains=("log_burst", "new_error", "data_stall", "slow_span", "throughput_loss"),
)
RECOMPILED = Kind(
    "recompilation",
    "WARN",
    "torch.compile compiles a function again and again, because shapes, types or Python values in it change",
    "Set TORCH_LOGS=recompiles to see what changes; mark dimensions as dynamic, or pad to a few fixed shapes.",
    explains=("slow_span", "periodic_stall", "throughput_loss", "log_burst"),
    lasts=True,
    next="stepscope tail RUN",
)
_RECOMPILED = ("recompile_limit", "cache_size_limit", "recompiling function")
"""What torch writes when it gives up, and in the log of recompilations."""
MAX_RECOMPILED = 8
"""So many recompilations are usual; a limit that is reached is not."""
WARN, ERROR = SEVERITIES["WARN"], SEVERITIES["ERROR"]
LINES = 20
"""A burst has this many records within `WINDOW_NS`, and ten times the usual rate."""
WINDOW_NS = 10_000_000_000
MAX_PATTERNS = 512
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?|[0-9a-f]{8,}")
_RETRY = re.compile(
    r"retr(y|ies|ying)|timed? ?out|timeout|\b(429|502|503|504)\b|connection (reset|refused|aborted)|backing off",
    re.IGNORECASE,
)


class Logs:
    """Watches the log records of a run from WARN upwards."""

    KINDS: ClassVar[tuple[Kind, ...]] = (NEW_ERROR, BURST, RETRIES, RECOMPILED)

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._seen: Counter[str] = Counter()
        self._recent: dict[str, deque[int]] = {}
        self._reported: set[str] = set()
        self._recompiled = 0

    def log(self, rank: int, log: Log, step: int | None) -> Found:
        """Evaluate a log record by its pattern, the message without numbers."""
        body, time = str(log.body), log.time
        if "dynamo" in log.scope or "dynamo" in body[:200]:
            return self._compiled(rank, body[:1000], step, time)
        if log.severity < WARN:
            return ()
        pattern = _DIGITS.sub("#", body[:1000])[:200]
        self._seen[pattern] += 1
        if len(self._seen) > MAX_PATTERNS:
            del self._seen[min(self._seen, key=lambda each: self._seen[each])]
        recent = self._recent.setdefault(pattern, deque(maxlen=LINES))
        recent.append(time)
        if len(self._recent) > MAX_PATTERNS:
            self._recent.pop(next(iter(self._recent)))
        found: list[Finding] = []
        if log.severity >= ERROR and self._seen[pattern] == 1 and self._first(f"new:{pattern}"):
            text = f"new error: {body[:160]}"
            found.append(NEW_ERROR.finding(text, time, step=step, ranks=(rank,), value=1.0, expected=(0.0, 0.0)))
        usual = self._usual(pattern, time) if len(recent) == LINES and time - recent[0] <= WINDOW_NS else LINES
        if usual < LINES / 10:
            kind = RETRIES if _RETRY.search(pattern) else BURST
            if self._first(f"{kind.name}:{pattern}"):
                text = f"{LINES} lines in {(time - recent[0]) / 1e9:.2g} s: {body[:120]}"
                band = (0.0, round(10 * usual, 1))
                found.append(
                    kind.finding(text, time, step=step, ranks=(rank,), value=float(LINES), expected=band, weight=2.0)
                )
        return found

    def _compiled(self, rank: int, body: str, step: int | None, time: int) -> Found:
        """Evaluate a line of torch's compiler."""
        lower = body.lower()
        word = next((each for each in _RECOMPILED if each in lower), "")
        self._recompiled += bool(word)
        few = word.startswith("recompiling") and self._recompiled <= MAX_RECOMPILED
        if not word or few or not self._first(RECOMPILED.name):
            return ()
        text = f"functions are compiled again and again: {body.strip()[:160]}"
        usual = (0.0, float(MAX_RECOMPILED))
        often = float(self._recompiled)
        return (RECOMPILED.finding(text, time, step=step, ranks=(rank,), value=often, expected=usual),)

    def _first(self, what: str) -> bool:
        """Return whether this is reported for the first time and the limit of reports is not reached."""
        if what in self._reported or len(self._reported) >= 4 * MAX_PATTERNS:
            return False
        self._reported.add(what)
        return True

    def _usual(self, pattern: str, time: int) -> float:
        """Return how many lines of a pattern the time of its last ones usually has; too early, as many as it had."""
        before, lasted = self._recent[pattern][0] - self._run.begun, time - self._recent[pattern][0]
        if before < 2 * lasted:
            return LINES
        return (self._seen[pattern] - LINES) * max(lasted, 1) / before
