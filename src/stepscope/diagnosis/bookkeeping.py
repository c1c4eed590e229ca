"""What records say of themselves: log bursts, new errors, steps that repeat or are missing, losses."""

import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from stepscope.diagnosis.detector import RunState
from stepscope.diagnosis.finding import Finding
from stepscope.model.names import SEVERITIES

WARN, ERROR = SEVERITIES["WARN"], SEVERITIES["ERROR"]
BURST = 20
"""A burst has so many lines within `WINDOW_NS`, and ten times the usual."""
WINDOW_NS = 10_000_000_000
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?|[0-9a-f]{8,}")
_RETRY = re.compile(
    r"retr(y|ies|ying)|timed? ?out|timeout|\b(429|502|503|504)\b|connection (reset|refused|aborted)|backing off",
    re.IGNORECASE,
)
MOST_PATTERNS = 512
REPEATED = 3
REGULAR = 30
MISSING = 10


class Logs:
    """Watches the log lines of a run from WARN upwards."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._recent: dict[str, deque[int]] = {}
        self.begun = 0
        """When the run began."""
        self._said: set[str] = set()

    def take(
        self, rank: int, time: int, step: int | None, severity: int, body: Any, run: RunState
    ) -> Iterator[Finding]:
        """Judge a line."""
        if severity < WARN:
            return
        pattern = _DIGITS.sub("#", str(body))[:200]
        self._seen[pattern] += 1
        if len(self._seen) > MOST_PATTERNS:
            del self._seen[min(self._seen, key=lambda each: self._seen[each])]
        recent = self._recent.setdefault(pattern, deque(maxlen=BURST))
        recent.append(time)
        if len(self._recent) > MOST_PATTERNS:
            self._recent.pop(next(iter(self._recent)))
        if severity >= ERROR and self._seen[pattern] == 1 and pattern not in self._said:
            self._said.add(pattern)
            yield self._finding("new_error", "ERROR", f"a new error: {str(body)[:160]}", rank, time, step, 1.0)
        if len(recent) == BURST and time - recent[0] <= WINDOW_NS and self._unusual(pattern, time):
            retry = bool(_RETRY.search(pattern))
            kind = "retry_storm" if retry else "log_burst"
            if f"{kind}:{pattern}" not in self._said:
                self._said.add(f"{kind}:{pattern}")
                said = f"{BURST} lines in {(time - recent[0]) / 1e9:.2g} s: {str(body)[:120]}"
                yield self._finding(kind, "WARN", said, rank, time, step, 2.0)

    def _unusual(self, pattern: str, time: int) -> bool:
        """Whether the line came far less often before: a line that has always come this often is no burst."""
        before, lasted = self._recent[pattern][0] - self.begun, time - self._recent[pattern][0]
        if before < 2 * lasted:
            return False
        return BURST / max(lasted, 1) > 10 * (self._seen[pattern] - BURST) / before

    def _finding(
        self, kind: str, severity: Any, text: str, rank: int, time: int, step: int | None, weight: float
    ) -> Finding:
        causes = {
            "new_error": "an error that this run had not logged before",
            "retry_storm": "a service that the run depends on fails or is overloaded",
            "log_burst": "something fails again and again",
        }
        return Finding(
            kind,
            severity,
            text,
            step=step,
            last=step,
            ranks=(rank,),
            cause=causes[kind],
            advice="Read the lines of that step.",
            time=time,
            weight=weight,
        )


class Steps:
    """Watches the steps of one key on one rank: steps that come again, and steps that never came."""

    def __init__(self, key: str, rank: int) -> None:
        self._key, self._rank = key, rank
        self._seen: deque[int] = deque(maxlen=512)
        self._among: set[int] = set()
        self._attempt = 1
        self._repeats = 0
        self._clean = 0
        self._spacing: int | None = None
        self._regular = 0
        self._last: int | None = None
        self._said: set[str] = set()
        self._begun = 0

    def take(self, step: int, time: int, run: RunState) -> Finding | None:
        """Judge the step of a value."""
        if run.attempt != self._attempt:
            self._attempt, self._repeats, self._last, self._regular = run.attempt, 0, None, 0
            self._seen.clear()
            self._among.clear()
        found = self._again(step, time, run) if step in self._among else self._gap(step, time, run)
        if len(self._seen) == self._seen.maxlen:
            self._among.discard(self._seen[0])
        self._seen.append(step)
        self._among.add(step)
        return found

    def _again(self, step: int, time: int, run: RunState) -> Finding | None:
        if self._clean < 20:
            self._clean = 0
            return None
        self._repeats += 1
        if self._repeats == 1:
            self._begun = step
        if self._repeats != REPEATED or "duplicate_steps" in self._said:
            return None
        self._said.add("duplicate_steps")
        return Finding(
            "duplicate_steps",
            "WARN",
            f"{self._key} is recorded again at steps that it had already, since step {self._begun}",
            step=self._begun,
            last=step,
            ranks=(self._rank,),
            key=self._key,
            cause="the loop went back without a restart, or two processes write as one rank",
            advice="Check for two processes with the same rank, and that the step is counted up.",
            time=time,
            attempt=run.attempt,
            weight=1.0,
        )

    def _gap(self, step: int, time: int, run: RunState) -> Finding | None:
        self._clean += 1
        last, self._last = self._last, step
        if last is None or step <= last:
            self._regular = 0
            return None
        spacing = step - last
        if spacing == self._spacing:
            self._regular += 1
            return None
        regular, usual, self._regular, self._spacing = self._regular, self._spacing, 0, spacing
        if usual is None or regular < REGULAR or spacing < MISSING * usual or "missing_steps" in self._said:
            return None
        self._said.add("missing_steps")
        self._spacing, self._regular = usual, regular
        return Finding(
            "missing_steps",
            "WARN",
            f"{self._key} has nothing between steps {last} and {step}; it came every {usual} steps",
            step=last,
            last=step,
            ranks=(self._rank,),
            key=self._key,
            cause="records were lost, or the step jumped",
            advice="Look at the counts of dropped records, and at how the step is counted.",
            time=time,
            weight=1.0,
        )


class Losses:
    """Watches the recorder's own counters: records that were dropped or rejected."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._said: set[str] = set()

    def take(self, key: str, step: int | None, time: int, value: float) -> Finding | None:
        """Judge a counter of `stepscope/`."""
        parts = key.split("/")
        if len(parts) < 2 or parts[1] not in ("dropped", "rejected") or value <= 0 or parts[1] in self._said:
            return None
        self._said.add(parts[1])
        return Finding(
            "lost_records",
            "WARN",
            f"{value:.0f} records were {parts[1]} on rank {self._rank} ({'/'.join(parts[2:]) or 'no reason given'})",
            step=step,
            last=step,
            ranks=(self._rank,),
            key=key,
            value=value,
            expected=(0.0, 0.0),
            cause="more was recorded than the quota allows"
            if parts[1] == "dropped"
            else "values that cannot be recorded",
            advice="Raise the quota, or record less."
            if parts[1] == "dropped"
            else "See the counts by reason in `stepscope show`.",
            time=time,
            weight=1.0,
        )
