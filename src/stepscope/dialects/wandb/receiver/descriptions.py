"""The metadata of a run (start, configuration, name, notes, tags) as events of the run."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from stepscope.dialects.wandb.receiver.line_records import read_row
from stepscope.dialects.wandb.receiver.tracked_runs import END, HEARTBEAT_SECONDS, START, Sent, TrackedRun, TrackedRuns
from stepscope.dialects.wandb.wire import EVENT_CHARTS
from stepscope.dialects.wandb.wire.plots import charts_in
from stepscope.model.names import ATTR_HEARTBEAT, EVENT_CONFIG, EVENT_EDITED, EVENT_STARTED, SEVERITIES
from stepscope.model.records import Event, Record
from stepscope.model.redaction import redact
from stepscope.model.run_description import LONGEST_NAME, LONGEST_NOTES, MAX_TAGS, read_tags
from stepscope.wire.nested_rows import Definition, read_definitions

OWN_CONFIG = "_wandb"
"""The configuration key of the client's own data."""


def begin(runs: TrackedRuns, sent: Sent, *, start_over: bool = False, resume: bool = False) -> None:
    """Record the start of an attempt: the first, a resumed one, or a restart with the same id (`start_over`)."""
    about = sent.run.about
    start = about.stream(START)
    fresh = not about.attempt or start_over or resume
    if not fresh and start.last is not None and start.last.seq not in sent.run.unsure:
        return
    if fresh:
        about.attempt += 1
        about.started = runs.clock()
        about.resuming = False
        about.streams = {} if start_over else {name: each for name, each in about.streams.items() if name != END}
        sent.run.console.clear()
        start = about.stream(START)
        start.last = None
    start.last = runs.add(sent, [_event(about.started, EVENT_STARTED, _beginning(about))], start.last)


def _beginning(about: TrackedRun) -> dict[str, Any]:
    described = {"notes": about.notes, "tags": read_tags(about.tags), "group": about.group, "job_type": about.job_type}
    described |= {
        "parent": about.parent,
        "program": about.program,
        "git.commit": about.commit,
        "git.repository": about.repo,
    }
    settings = {"config": plain_config(about.config), ATTR_HEARTBEAT: HEARTBEAT_SECONDS}
    forked = {"parent": about.parent, "from_step": about.from_step} if about.parent else {}
    began = {key: value for key, value in forked.items() if value is not None}
    return {**settings, **{key: value for key, value in described.items() if value}, **began}


def describe(runs: TrackedRuns, sent: Sent, given: Mapping[str, Any]) -> None:
    """Record metadata from the client: the first message starts the run, later ones edit the given fields."""
    about = sent.run.about
    before = (about.name, about.notes, read_tags(about.tags), plain_config(about.config))
    charts = _charts(about.config)
    about.name = _text(given.get("displayName"), about.name)[:LONGEST_NAME]
    about.notes = _text(given.get("notes"), about.notes)[:LONGEST_NOTES]
    if isinstance(given.get("tags"), list):
        about.tags = [tag for tag in redact(given["tags"]) if isinstance(tag, str)][:MAX_TAGS]
    about.group = _text(given.get("groupName"), about.group)
    about.job_type = _text(given.get("jobType"), about.job_type)
    about.host = _text(given.get("host"), about.host)
    about.program = _text(given.get("jobProgram"), about.program)
    about.commit = _text(given.get("commit"), about.commit)
    about.repo = _text(given.get("jobRepo"), about.repo)
    config = _parsed(given.get("config"))
    if config is not None:
        about.config = json.dumps({key: _safe_item(key, value) for key, value in config.items()})
    summary = _parsed(given.get("summaryMetrics"))
    if summary is not None:
        about.summary = json.dumps(redact(summary))
    starts = given.get("host") is not None or given.get("jobProgram") is not None  # later descriptions have neither
    if not about.attempt or (about.resuming and starts):
        begin(runs, sent, resume=about.resuming)
    else:
        begin(runs, sent)
        if edits := _edits(about, *before, runs.clock()):
            runs.add(sent, edits)
    drawn = {key: each for key, each in _charts(about.config).items() if charts.get(key) != each}
    if drawn:
        runs.add(sent, [_event(runs.clock(), EVENT_CHARTS, drawn)])


def _charts(config: str) -> dict[str, dict[str, str]]:
    """How the charts of a run are drawn, each with the key of its table."""
    return {key: {"table": table, **chart} for key, table, chart in charts_in(own_fields(config))}


def _edits(
    about: TrackedRun, name: str, notes: str, tags: dict[str, Any], config: dict[str, Any], now: int
) -> list[Record]:
    change: dict[str, Any] = {"name": about.name} if about.name != name and about.name else {}
    change |= {"notes": about.notes} if about.notes != notes else {}
    tags_now = read_tags(about.tags)
    if tags_now != tags:
        change["tags"] = {**dict.fromkeys(tags.keys() - tags_now.keys()), **tags_now}
    found: list[Record] = [_event(now, EVENT_EDITED, change)] if change else []
    fresh = {key: value for key, value in plain_config(about.config).items() if config.get(key, _parsed) != value}
    return [*found, _event(now, EVENT_CONFIG, fresh)] if fresh else found


def _event(time: int, name: str, attrs: dict[str, Any]) -> Event:
    return Event(time, None, None, None, None, SEVERITIES["INFO"], name, attrs)


def _text(given: Any, before: str) -> str:
    return redact(given)[:4096] if isinstance(given, str) else before


def _parsed(given: Any) -> dict[str, Any] | None:
    """Parse JSON text; None when it is missing or not an object."""
    found = read_row(given) if isinstance(given, str) else given
    return found if isinstance(found, dict) else None


def _safe_item(key: str, item: Any) -> Any:
    """Mask the secrets in a configuration item, such as `{"value": 3e-4}`."""
    if isinstance(item, dict) and "value" in item:
        return {**redact(item), "value": redact({key: item["value"]})[key]}
    return redact({key: item})[key]


def plain_config(text: str) -> dict[str, Any]:
    """Return the user's configuration without the client's own keys: `{"lr": {"value": 3e-4}}` as `{"lr": 3e-4}`."""
    found = read_row(text) or {}
    return {
        key: value["value"] if isinstance(value, dict) and "value" in value else value
        for key, value in found.items()
        if key != OWN_CONFIG
    }


@lru_cache(maxsize=256)
def definitions_of(config: str) -> tuple[Definition, ...]:
    """Return the metric definitions (`define_metric`) in a configuration."""
    return read_definitions(own_fields(config).get("m"))


def own_config(config: str, keys: Any) -> str:
    """Return the client's own part of a configuration, all of it or some keys, as JSON."""
    found = own_fields(config)
    return json.dumps({key: value for key, value in found.items() if key in keys} if isinstance(keys, list) else found)


def own_fields(config: Any) -> dict[str, Any]:
    """Return the client's own data in a configuration; empty if it cannot be read."""
    settings = (_parsed(config) or {}).get(OWN_CONFIG)
    value = settings.get("value") if isinstance(settings, dict) else None
    return value if isinstance(value, dict) else {}
