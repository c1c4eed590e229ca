"""Webhook bodies: our own, and those for Slack, Discord, Teams and PagerDuty."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from stepscope.alerts.alert import Alert
from stepscope.alerts.dispatch import Notification
from stepscope.model.records import word

Shape = Callable[[Notification], list[Any]]
"""Makes the bodies of a notification, one request for each."""

_COLOURS = {"INFO": 0x3B82F6, "WARN": 0xD97706, "ERROR": 0xDC2626, "FATAL": 0x991B1B}
_RESOLVED = 0x16A34A
_PAGERDUTY = {"INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "critical"}


def plain(notification: Notification) -> list[Any]:
    """Return the notification with all its fields as JSON."""
    return [
        {
            "version": 1,
            "status": notification.status,
            "title": notification.title,
            "text": notification.text,
            "severity": notification.severity,
            "run": notification.run,
            "project": notification.project,
            "time": moment(notification.time),
            "url": notification.url,
            "test": notification.test,
            "left_out": notification.left_out,
            "alerts": [describe(alert) for alert in notification.alerts],
        }
    ]


def describe(alert: Alert) -> dict[str, Any]:
    """One alert as JSON."""
    about = alert.subject
    return {
        "id": alert.id,
        "fingerprint": alert.fingerprint,
        "rule": about.rule,
        "finding": about.finding or None,
        "run": about.run,
        "key": about.key or None,
        "rank": about.rank,
        "state": alert.state,
        "severity": alert.severity,
        "message": alert.message,
        "value": None if alert.value is None else word(alert.value),
        "step": alert.step,
        "began": moment(alert.began),
        "resolved": moment(alert.resolved),
        "expected": (alert.finding or {}).get("band") or None,
        "advice": (alert.finding or {}).get("advice") or None,
    }


def slack(notification: Notification) -> list[Any]:
    """An attachment with the colour of the severity."""
    title = _escaped(notification.title)
    link = f"<{notification.url}|{title}>" if notification.url else f"*{title}*"
    block = {"type": "section", "text": {"type": "mrkdwn", "text": f"{link}\n{_escaped(notification.text)}"[:2900]}}
    return [{"text": title[:2900], "attachments": [{"color": f"#{_colour(notification):06x}", "blocks": [block]}]}]


def discord(notification: Notification) -> list[Any]:
    """A Discord embed that mentions no one."""
    embed = {
        "title": notification.title[:250],
        "description": notification.text[:4000],
        "color": _colour(notification),
        "timestamp": moment(notification.time),
    }
    return [
        {"embeds": [embed | ({"url": notification.url} if notification.url else {})], "allowed_mentions": {"parse": []}}
    ]


def teams(notification: Notification) -> list[Any]:
    """An adaptive card, as Teams workflows accept it."""
    colour = (
        "Good" if notification.status == "resolved" else "Warning" if notification.severity == "WARN" else "Attention"
    )
    texts: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": notification.title[:500], "weight": "Bolder", "wrap": True, "color": colour},
        {"type": "TextBlock", "text": notification.text[:8000].replace("\n", "\n\n"), "wrap": True},
    ]
    card: dict[str, Any] = {"type": "AdaptiveCard", "version": "1.4", "body": texts}
    card["$schema"] = "http://adaptivecards.io/schemas/adaptive-card.json"
    if notification.url:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": notification.url}]
    kind = "application/vnd.microsoft.card.adaptive"
    return [{"type": "message", "attachments": [{"contentType": kind, "content": card}]}]


def pagerduty(notification: Notification) -> list[Any]:
    """One event for each alert; PagerDuty deduplicates by the fingerprint."""
    action = "resolve" if notification.status == "resolved" else "trigger"
    return [
        {
            "event_action": action,
            "dedup_key": alert.fingerprint,
            "payload": {
                "summary": (alert.message or notification.title)[:1000],
                "source": alert.run_name or alert.subject.run,
                "severity": _PAGERDUTY.get(alert.severity, "warning"),
                "timestamp": moment(alert.began),
                "component": alert.subject.key or None,
                "group": alert.project or None,
                "class": alert.subject.finding or alert.subject.rule,
                "custom_details": describe(alert),
            },
            **({"links": [{"href": notification.url, "text": "Stepscope"}]} if notification.url else {}),
        }
        for alert in notification.alerts
    ]


SHAPES: Mapping[str, Shape] = {
    "json": plain,
    "slack": slack,
    "discord": discord,
    "teams": teams,
    "pagerduty": pagerduty,
}


def placeholders(notification: Notification) -> dict[str, Any]:
    """The names that a template may use in braces."""
    first = notification.alerts[0]
    return {
        "title": notification.title,
        "text": notification.text,
        "status": notification.status,
        "severity": notification.severity,
        "run": notification.run,
        "project": notification.project,
        "url": notification.url,
        "time": moment(notification.time),
        "rule": first.subject.rule,
        "key": first.subject.key,
        "value": None if first.value is None else word(first.value),
        "step": first.step,
        "fingerprint": notification.group,
    }


def moment(ns: int) -> str | None:
    """Format a time as RFC 3339; None for 0."""
    if not ns:
        return None
    whole, rest = divmod(ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{rest // 1_000_000:03d}Z"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _colour(notification: Notification) -> int:
    return _RESOLVED if notification.status == "resolved" else _COLOURS.get(notification.severity, _COLOURS["WARN"])
