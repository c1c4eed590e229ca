"""Endpoints of alerts: what fires and fired, one alert with its snapshot, acknowledging, expecting, silencing."""

import time
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from stepscope.alerts import alert as alerts
from stepscope.alerts.alert import Alert, Expected, Silence
from stepscope.alerts.rule import RuleError, read_duration
from stepscope.alerts.state_machine import OPEN, STATES, State
from stepscope.hub.alerting.alerting_thread import Alerting
from stepscope.hub.questions.toolbox.endpoint import (
    EXACT_RUN,
    LIMIT,
    OFFSET,
    Endpoint,
    Next,
    Param,
    Reader,
    decode_body,
    seconds,
)
from stepscope.hub.refusals import bad_request, forbidden, not_found
from stepscope.model.records import Number, Seconds, word
from stepscope.wire.plain import plain

LONGEST_TEXT = 200
_STATES = ("open", *STATES)
_Pattern = Annotated[str, Meta(max_length=LONGEST_TEXT)]


class NewSilence(msgspec.Struct, forbid_unknown_fields=True, rename={"duration": "for"}):
    """The body of a request that adds a silence."""

    duration: Annotated[
        str | float,
        Meta(
            description="How long, such as 2h.",
            extra_json_schema={"type": "string", "pattern": "^[1-9][0-9]?[smhd]$"},
        ),
    ]
    rule: _Pattern = "*"
    run: _Pattern = "*"
    key: _Pattern = "*"
    why: _Pattern = ""


class ExpectedAlert(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that marks an alert as expected."""

    project: bool = False


class AlertJson(TypedDict):
    """An alert of a rule or a finding."""

    id: str
    fingerprint: str
    rule: str
    finding: str | None
    run: str
    run_name: str | None
    project: str
    key: str | None
    rank: int | None
    state: State
    severity: str
    message: str
    advice: str
    cause: str
    band: str
    threshold: str
    value: Number | None
    step: int | None
    last_step: int | None
    began: Seconds
    fired: Seconds
    changed: Seconds
    resolved: Seconds
    ended: bool
    count: int
    seen_by: list[str]
    acknowledged: Seconds
    acknowledged_by: str
    expected: bool
    muted: str
    notified: Seconds
    delivered: Seconds
    error: str


class AlertDetails(AlertJson):
    """An alert with its snapshot: values, slow spans and logs around its step, as they were when it fired."""

    snapshot: dict[str, Any] | None


class AlertList(TypedDict):
    """Alerts of rules and findings, the newest first."""

    alerts: list[AlertJson]
    counts: Annotated[dict[State, int], Meta(description="How many are in each state.")]
    next: Next


class SilenceJson(TypedDict):
    """A silence: alerts that send no notifications."""

    id: str
    rule: str
    run: str
    key: str
    since: Seconds
    until: Seconds
    who: str
    why: str


class MarkJson(TypedDict):
    """A mark of a person that alerts or findings are expected."""

    id: str
    rule: str
    finding: str
    key: str
    run: str
    project: str
    who: str
    time: Seconds


class Muted(TypedDict):
    """The silences that last, and the marks as expected."""

    silences: list[SilenceJson]
    expected: list[MarkJson]


class RemovedSilence(TypedDict):
    """A silence or a mark that was removed."""

    id: str
    removed: bool


def alerting(reader: Reader) -> Alerting:
    """Return the alerting service; Refused without a running hub."""
    if reader.alerting is None:
        raise not_found("alerts need a running hub: start one with `stepscope hub`")
    return reader.alerting


def for_all_projects(reader: Reader) -> Alerting:
    """Return the alerting service for a change that affects all projects; Refused for a token limited to one."""
    if reader.project is not None:
        raise forbidden("this change affects all projects, and this token is limited to one")
    return alerting(reader)


_ID = Param("id", "text", "the id", required=True, place="path")
_RULE = Param("rule", "text", "of this rule")
_STATE = Param("state", "choice", "in this state; `open` is any state that sends notifications", choices=_STATES)


@Endpoint("/api/alerts/states", "listAlertStates", (_STATE, EXACT_RUN, _RULE, LIMIT, OFFSET))
def listing(reader: Reader, given: dict[str, Any]) -> AlertList:
    """The alerts of rules and findings, the newest first, with the number in each state."""
    wanted = OPEN if given["state"] == "open" else None if given["state"] is None else {given["state"]}
    found = [
        alert
        for alert in alerting(reader).alerts()
        if reader.project in (None, alert.project)
        and (wanted is None or alert.state in wanted)
        and given["run"] in (None, alert.subject.run)
        and given["rule"] in (None, alert.subject.rule)
    ]
    counts = {state: sum(alert.state == state for alert in found) for state in STATES}
    first = given["offset"]
    shown = found[first : first + given["limit"]]
    more = first + given["limit"] if len(found) > first + given["limit"] else None
    return {"alerts": [_shape(alert) for alert in shown], "counts": counts, "next": more}


@Endpoint("/api/alerts/states/{id}", "readAlertState", (_ID,))
def one(reader: Reader, given: dict[str, Any]) -> AlertDetails:
    """One alert, with the snapshot that was taken when it fired."""
    alert = _seen(reader, given["id"])
    return {**_shape(alert), "snapshot": plain(alert.snapshot)}


@Endpoint("/api/alerts/states/{id}/acknowledge", "acknowledgeAlert", (_ID,), method="POST")
def acknowledge(reader: Reader, given: dict[str, Any]) -> AlertJson:
    """Acknowledge an alert: its notifications are not repeated."""
    alert = _seen(reader, given["id"])
    alerting(reader).acknowledge(alert.id, reader.who)
    return _shape(alert)


@Endpoint("/api/alerts/states/{id}/expected", "expectAlert", (_ID,), method="POST", body=ExpectedAlert)
def expect(reader: Reader, given: dict[str, Any]) -> MarkJson:
    """Mark similar alerts as expected, in the run or in its whole project: they send no notifications."""
    alert = _seen(reader, given["id"])
    wanted = decode_body(ExpectedAlert, given["body"] or b"{}", '{"project": false}')
    mark = alerting(reader).mark_expected(alert.id, reader.who, project=wanted.project)
    assert mark is not None
    return mark_json(mark)


@Endpoint("/api/alerts/silences", "listSilences")
def muted(reader: Reader, given: dict[str, Any]) -> Muted:
    """The silences that last, and the marks as expected."""
    known = alerting(reader)
    marks = [mark for mark in known.expected() if reader.project in (None, mark.project) or not mark.project]
    return {"silences": [_silence(each) for each in known.silences()], "expected": [mark_json(mark) for mark in marks]}


@Endpoint("/api/alerts/silences", "addSilence", method="POST", body=NewSilence)
def silence(reader: Reader, given: dict[str, Any]) -> SilenceJson:
    """Silence some alerts for a while; `*` in a pattern matches anything.

    There is one silence of the same patterns: it is extended, and a repeated request changes nothing.
    """
    known = for_all_projects(reader)
    example = '{"rule": "*", "run": "*", "key": "*", "for": "2h", "why": "..."}'
    wanted = decode_body(NewSilence, given["body"], example)
    try:
        lasts = read_duration("for", wanted.duration)
    except RuleError as error:
        raise bad_request(f"send {example}: {error}") from None
    if lasts.seconds <= 0:
        raise bad_request("for must be a duration such as 2h")
    now = time.time_ns()
    patterns = wanted.rule or "*", wanted.run or "*", wanted.key or "*"
    until = now + int(lasts.seconds * 1e9)
    made = known.silence(alerts.silence(*patterns, since=now, until=until, who=reader.who, why=wanted.why))
    if made is None:
        raise bad_request("there are too many silences: remove some")
    return _silence(made)


@Endpoint("/api/alerts/silences/{id}", "removeSilence", (_ID,), method="DELETE")
def remove(reader: Reader, given: dict[str, Any]) -> RemovedSilence:
    """Remove a silence or a mark as expected."""
    if not for_all_projects(reader).remove(given["id"]):
        raise not_found(f"there is no silence {given['id']}")
    return {"id": given["id"], "removed": True}


def _seen(reader: Reader, id: str) -> Alert:
    alert = alerting(reader).alert(id)
    if alert is None or reader.project not in (None, alert.project):
        raise not_found(f"there is no alert {id[:200]!r}")
    return alert


def _shape(alert: Alert) -> AlertJson:
    about, found = alert.subject, alert.finding or {}
    return {
        "id": alert.id,
        "fingerprint": alert.fingerprint,
        "rule": about.rule,
        "finding": about.finding or None,
        "run": about.run,
        "run_name": alert.run_name or None,
        "project": alert.project,
        "key": about.key or None,
        "rank": about.rank,
        "state": alert.state,
        "severity": alert.severity,
        "message": alert.message,
        "advice": str(found.get("advice") or ""),
        "cause": str(found.get("cause") or ""),
        "band": str(found.get("band") or ""),
        "threshold": alert.threshold,
        "value": None if alert.value is None else word(alert.value),
        "step": alert.step,
        "last_step": alert.last_step,
        "began": seconds(alert.began),
        "fired": seconds(alert.fired),
        "changed": seconds(alert.changed),
        "resolved": seconds(alert.resolved),
        "ended": alert.ended,
        "count": alert.count,
        "seen_by": list(alert.seen_by),
        "acknowledged": seconds(alert.acknowledged),
        "acknowledged_by": alert.acknowledged_by,
        "expected": alert.expected,
        "muted": alert.muted,
        "notified": seconds(alert.notified),
        "delivered": seconds(alert.delivered),
        "error": alert.error,
    }


def _silence(each: Silence) -> SilenceJson:
    return {
        "id": each.id,
        "rule": each.rule,
        "run": each.run,
        "key": each.key,
        "since": seconds(each.since),
        "until": seconds(each.until),
        "who": each.who,
        "why": each.why,
    }


def mark_json(each: Expected) -> MarkJson:
    """A mark as expected."""
    return {
        "id": each.id,
        "rule": each.rule,
        "finding": each.finding,
        "key": each.key,
        "run": each.run,
        "project": each.project,
        "who": each.who,
        "time": seconds(each.time),
    }
