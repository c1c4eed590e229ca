"""Alert rules in the trainer: those of `init(alerts=[...])` or of the project's file, judged on what was written."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepscope.alerts.alert import ATTR_FINGERPRINT, ATTR_RULE, ATTR_STATE, Alert
from stepscope.alerts.evaluator import Evaluator
from stepscope.alerts.rule import Compiled, Rule, from_python
from stepscope.diagnosis.finding import Finding
from stepscope.model.errors import ConfigError
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Record
from stepscope.sdk.run_protocols import AlertingPart

Given = Sequence[Rule | Mapping[str, Any]] | str | Path


def read_rules(given: Given) -> tuple[Compiled, ...]:
    """Check rules, or read those of a file; ConfigError says what is wrong, and where."""
    if not isinstance(given, (str, Path)):
        if isinstance(given, Mapping) or not isinstance(given, Iterable):
            raise ConfigError(
                "alerts: expected a list of rules, such as [{'name': 'high', 'key': 'loss', 'when': '> 10'}]"
            )
        return from_python(list(given))
    try:
        from stepscope.alerts.rule_file import Mistake, with_packs  # needs PyYAML
    except ImportError:
        raise ConfigError(f"alerts: {given} is YAML: pip install 'stepscope[yaml]'") from None
    try:
        rules = with_packs([(str(given), Path(given).read_text(encoding="utf-8"))]).rules
    except Mistake as mistake:
        raise ConfigError(f"{given}:{mistake.line}:{mistake.column}: {mistake}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"alerts: {given} cannot be read: {error}") from None
    return tuple(rule for rule in rules if rule.source == str(given))


class TrainerRules:
    """Evaluates rules on the metrics of this process and records what fires and resolves. One thread calls it."""

    def __init__(self, run: AlertingPart, rules: Sequence[Compiled], clock: Callable[[], int] = time.time_ns) -> None:
        self._run, self._rules, self._clock = run, rules, clock
        self._writer = Writer(id="trainer", run=run.id, project=run.project, name=run.name, rank=run.rank)
        self.reset()

    def reset(self) -> None:
        """Restart the evaluation."""
        self._evaluator = Evaluator(self._rules, "trainer")
        self._notified: set[str] = set()

    def feed(self, found: Iterable[Record]) -> None:
        """Judge records that were written; only metrics are."""
        self._evaluator.feed(self._writer, (each for each in found if type(each) is Metric), self._clock())

    def take_breaches(self) -> Iterator[Finding]:
        """Record the alerts that fired or resolved since; those that fired are yielded for the callback."""
        self._evaluator.tick(self._clock())
        changed = list(self._evaluator.changed.values())
        self._evaluator.changed.clear()
        for alert in changed:
            if alert.fired and alert.id not in self._notified:
                self._notified.add(alert.id)
                self._record(alert, "firing")
                yield _finding(alert)
            if alert.state == "resolved" and alert.id in self._notified:
                self._notified.discard(alert.id)
                self._record(alert, "resolved")

    def _record(self, alert: Alert, state: str) -> None:
        about = alert.subject
        attrs: dict[str, Any] = {ATTR_RULE: about.rule, ATTR_FINGERPRINT: alert.fingerprint, ATTR_STATE: state}
        attrs |= {"alert.key": about.key, "alert.rank": about.rank, "alert.value": alert.value}
        severity = alert.severity if state == "firing" else "INFO"
        text = alert.message if state == "firing" else f"resolved: {alert.message}"
        self._run.alert(about.rule, severity, text, step=alert.last_step, **attrs)


def _finding(alert: Alert) -> Finding:
    """The alert as a callback gets it; `kind` is the rule's name."""
    about = alert.subject
    return Finding(
        about.rule,
        "FATAL" if alert.severity == "FATAL" else "ERROR" if alert.severity == "ERROR" else "WARN",
        alert.message,
        step=alert.step,
        last=alert.last_step,
        ranks=() if about.rank is None else (about.rank,),
        key=about.key or None,
        value=alert.value,
        time=alert.began,
        weight=1.0,
    )
