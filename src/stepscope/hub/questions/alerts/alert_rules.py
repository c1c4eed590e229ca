"""Endpoints of alert rules: the rules in force, checking and saving the page's own, and a preview over a run."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from stepscope.alerts.alert import Alert
from stepscope.alerts.delivery import DeliveryStatus
from stepscope.alerts.rule import Compiled
from stepscope.alerts.rule_file import LONGEST, Mistake, Rules, parse
from stepscope.alerts.rule_replay import replay
from stepscope.hub.alerting.alerting_thread import Alerting, RuleStatus
from stepscope.hub.alerting.rule_files import FILES, PAGE, FileMistake
from stepscope.hub.questions.alerts.alert_states import alerting, for_all_projects
from stepscope.hub.questions.export import read_points
from stepscope.hub.questions.toolbox.endpoint import (
    Endpoint,
    MistakeJson,
    Param,
    Reader,
    Replaced,
    decode_body,
    seconds,
)
from stepscope.hub.refusals import bad_request, not_found, unavailable
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import find_series
from stepscope.hub.store.read.run_row import RunRow
from stepscope.hub.store.schema import NO_STEP
from stepscope.model.ports import Writer
from stepscope.model.records import Metric, Number, Record, Seconds, word

MAX_POINTS = 500_000
"""The most points that a preview reads; the latest are left out, and the response says so."""
MAX_CHECKS = 5_000_000
"""The most values that a preview compares with a rule: with many rules it reads fewer points."""
MAX_SHOWN = 200
"""The most alerts and keys that a preview lists; all are counted."""


_Yaml = Annotated[str, Meta(extra_json_schema={"maxLength": LONGEST})]


class NewRules(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request with rules."""

    yaml: _Yaml
    version: Replaced = None


class Trial(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that tries rules on a run."""

    yaml: _Yaml
    run: str


_Hold = TypedDict("_Hold", {"for": str})


class RuleJson(_Hold):
    """A rule in force."""

    name: str
    source: str
    keys: list[str]
    when: str
    severity: str
    enabled: bool
    notify: list[str] | None
    series: Annotated[int, Meta(description="Series that it watches.")]
    skipped: int
    firing: int


class RuleList(TypedDict):
    """The rules in force, mistakes in their files, and the status of the notifiers."""

    rules: list[RuleJson]
    mistakes: list[FileMistake]
    yaml: Annotated[str, Meta(description="The rules of the page.")]
    version: str
    files: list[str]
    notifiers: list[DeliveryStatus]
    passed_over: int
    trouble: str


class FiredJson(TypedDict):
    """An alert that a rule would have raised."""

    rule: str
    key: str
    rank: int | None
    state: str
    severity: str
    message: str
    step: int | None
    last_step: int | None
    value: Number | None
    began: Seconds
    resolved: Seconds


class Preview(TypedDict):
    """The alerts that some rules would have raised over a run."""

    mistake: MistakeJson | None
    alerts: Annotated[list[FiredJson], Meta(description=f"The first {MAX_SHOWN}.")]
    fired: int
    keys: list[str]
    matched: int
    points: int
    complete: Annotated[bool, Meta(description="False if the run has more points than were evaluated.")]


class SentTest(TypedDict):
    """Whether a test notification was accepted."""

    name: str
    sent: bool
    reason: str


_NAME = Param("name", "text", "the name of a notifier", required=True, place="path")


@Endpoint("/api/alerts/rules", "listRules")
def listing(reader: Reader, given: dict[str, Any]) -> RuleList:
    """The rules in force, mistakes in their files, and the status of the notifiers."""
    known = alerting(reader)
    rules, mistakes = known.rules()
    return {
        "rules": [_shape(status) for status in rules],
        "mistakes": mistakes,
        "yaml": known.files.text(PAGE),
        "version": known.files.page_version,
        "files": list(FILES),
        "notifiers": known.notifiers(),
        "passed_over": known.waiting.skipped,
        "trouble": known.problem or known.log_problem,
    }


@Endpoint("/api/alerts/rules", "saveRules", method="PUT", body=NewRules)
def save(reader: Reader, given: dict[str, Any]) -> RuleList:
    """Replace the rules of the page (alerts-page.yaml); a text that is wrong is refused with line and column."""
    known = for_all_projects(reader)
    try:
        wanted = decode_body(NewRules, given["body"], '{"yaml": "rules: ..."}')
        known.save_rules(wanted.yaml, wanted.version)
    except Mistake as mistake:
        raise bad_request(f"line {mistake.line}, column {mistake.column}: {mistake}") from None
    except OSError as error:
        why = f"the rules cannot be written: {error.strerror or error}"
        raise unavailable(why, 5.0) from None
    now: RuleList = listing.answer(reader, given)
    return now


@Endpoint("/api/alerts/preview", "previewRules", method="POST", body=Trial)
def preview(reader: Reader, given: dict[str, Any]) -> Preview:
    """Which alerts some rules would have raised over a run; nothing is stored and no notification is sent."""
    wanted = decode_body(Trial, given["body"], '{"yaml": "rules: ...", "run": "ID"}')
    row = reader.run(wanted.run)
    try:
        rules = _rules(reader.alerting, wanted.yaml)
    except Mistake as mistake:
        location: MistakeJson = {"line": mistake.line, "column": mistake.column, "message": str(mistake)}
        return {"mistake": location, "alerts": [], "fired": 0, "keys": [], "matched": 0, "points": 0, "complete": True}
    lines = find_series(reader.engine, row.number).values()
    keys = sorted({line.key for line in lines if any(rule.wants_key(line.key) for rule in rules)})
    records = _Records(reader.engine, row, keys, min(MAX_POINTS, MAX_CHECKS // max(len(rules), 1)))
    alerts = sorted(replay(rules, records.read()), key=lambda alert: alert.began)
    return {
        "mistake": None,
        "alerts": [_fired(alert) for alert in alerts[:MAX_SHOWN]],
        "fired": len(alerts),
        "keys": keys[:MAX_SHOWN],
        "matched": len(keys),
        "points": records.count,
        "complete": records.complete,
    }


@Endpoint("/api/alerts/notifiers/{name}/test", "testNotifier", (_NAME,), method="POST")
def test(reader: Reader, given: dict[str, Any]) -> SentTest:
    """Send a test notification, and return whether it was accepted."""
    why = for_all_projects(reader).test_notifier(given["name"])
    if why is None:
        raise not_found(f"there is no notifier {given['name'][:200]!r}")
    return {"name": given["name"], "sent": not why, "reason": why}


def _rules(known: Alerting | None, text: str) -> Sequence[Compiled]:
    found: Rules = known.files.parse(text) if known is not None else parse(text)
    return found.rules


class _Records:
    """The points of some keys of a run as records, in the order of time."""

    def __init__(self, engine: Engine, row: RunRow, keys: Sequence[str], most: int) -> None:
        self._engine, self._row, self._keys, self._most = engine, row, keys, most
        self.count = 0
        self.complete = True

    def read(self) -> Iterator[tuple[Writer, Record]]:
        """Yield the points, up to a limit."""
        row = self._row
        writers: dict[int, Writer] = {}
        found: list[tuple[int, int, int, str, float]] = []
        for piece in read_points(self._engine, row.number, keys=self._keys) if self._keys else ():
            left = self._most - len(found)
            self.complete = self.complete and len(piece.step) <= left
            for index in range(min(len(piece.step), left)):
                line = piece.series[int(piece.which[index])]
                place = (int(piece.time[index]), int(piece.step[index]), line.rank, line.key)
                found.append((*place, float(piece.value[index])))
            if len(found) >= self._most:
                break
        self.count = len(found)
        found.sort(key=lambda each: each[:4])
        for time, step, rank, key, value in found:
            writer = writers.get(rank) or writers.setdefault(rank, _writer(row, rank))
            yield writer, Metric(time, None if step == NO_STEP else step, None, None, {key: value})


def _writer(row: RunRow, rank: int) -> Writer:
    return Writer(
        id=f"r{rank}",
        run=row.id,
        project=row.project,
        name=row.name or None,
        rank=rank,
        world_size=max(row.ranks, 1),
        wall_ns=row.started or 0,
    )


def _shape(status: RuleStatus) -> RuleJson:
    rule = status.rule
    return {
        "name": rule.name,
        "source": rule.source,
        "keys": [rule.rule.key] if isinstance(rule.rule.key, str) else list(rule.rule.key),
        "when": rule.condition.text,
        "for": str(rule.hold) if rule.hold else "",
        "severity": rule.rule.severity or "",
        "enabled": rule.rule.enabled,
        "notify": rule.rule.notifiers,
        "series": status.series,
        "skipped": status.skipped,
        "firing": status.firing,
    }


def _fired(alert: Alert) -> FiredJson:
    return {
        "rule": alert.subject.rule,
        "key": alert.subject.key,
        "rank": alert.subject.rank,
        "state": alert.state,
        "severity": alert.severity,
        "message": alert.message,
        "step": alert.step,
        "last_step": alert.last_step,
        "value": None if alert.value is None else word(alert.value),
        "began": seconds(alert.began),
        "resolved": seconds(alert.resolved),
    }
