"""What MLflow keeps of a run beside its metrics: params from the config, tags from events and alerts."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from stepscope.model.edits import read_tags
from stepscope.model.names import severity_word
from stepscope.model.records import Alert, Event
from stepscope.model.redaction import redact
from stepscope.model.writer import Writer
from stepscope.wire.mlflow import names
from stepscope.wire.plain import dumps


def params(config: Mapping[str, Any]) -> dict[str, str]:
    """Flatten a config with `/`, secrets masked; keys and values as MLflow takes them."""
    found: dict[str, str] = {}
    for path, value in _leaves(redact(dict(config)), ""):
        key = names.legal_key(path)
        while key in found:  # {"a/b": 1, "a": {"b": 2}}
            key = names.legal_key(f"{key}_")
        found[key] = names.shorten(_text(value), names.LONGEST_PARAM)
    return found


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}/{key}" if path else str(key))
    elif path:
        yield path, value


def _text(value: Any) -> str:
    if isinstance(value, (dict, list, tuple)):
        return dumps(value, indent=None)
    return value.hex() if isinstance(value, bytes) else str(value)


def fresh_params(wanted: Mapping[str, str], known: Mapping[str, str], writer: Writer) -> dict[str, str]:
    """The params that MLflow does not have yet. It never changes one: a new value gets a key of its own."""
    found: dict[str, str] = {}
    for key, value in wanted.items():
        if key not in known:
            found[key] = value
        elif known[key] != value:
            other = names.legal_key(f"attempt_{writer.attempt}/rank_{writer.rank}/{key}")
            if other not in known:
                found[other] = value
    return found


def birth_tags(writer: Writer, creator: str) -> dict[str, str]:
    """The tags a run is created with: they tell whose it is."""
    return {names.TAG_RUN: names.run_mark(writer.run), names.TAG_CREATOR: creator, names.TAG_PROJECT: writer.project}


def attempt_tags(writer: Writer) -> dict[str, str]:
    """The tags that a new attempt puts on its run."""
    found = {
        names.TAG_ATTEMPT: str(writer.attempt),
        names.TAG_RUN: names.run_mark(writer.run),
        names.TAG_WORLD_SIZE: str(writer.world_size),
    }
    return {**found, names.TAG_HOST: writer.named_host} if writer.named_host else found


def source_tags(started: Mapping[str, Any]) -> dict[str, str]:
    """The program and the commit, as MLflow's page looks for them."""
    argv = started.get("argv")
    program = argv[0] if isinstance(argv, (list, tuple)) and argv else None
    pairs = {
        names.TAG_COMMIT: started.get("git.commit"),
        names.TAG_BRANCH: started.get("git.branch"),
        names.TAG_SOURCE: program,
    }
    return {key: names.shorten(str(value), names.LONGEST_TAG) for key, value in pairs.items() if value}


def described_tags(said: Mapping[str, Any]) -> dict[str, str]:
    """What a run says about itself, when it starts or later: its tags, notes as the description, group and name.

    A tag that was removed is left as it is: a batch can only set tags.
    """
    pairs = {
        names.TAG_NOTE: said.get("notes"),
        names.TAG_NAME: said.get("name"),
        names.TAG_GROUP: said.get("group"),
        names.TAG_JOB_TYPE: said.get("job_type"),
    }
    found = {key: value for key, value in pairs.items() if isinstance(value, str)}
    tags = redact(read_tags(said.get("tags")))
    found |= {names.legal_key(tag): "true" if value is True else str(value) for tag, value in tags.items()}
    return {key: names.shorten(value, names.LONGEST_TAG) for key, value in found.items()}


def note_tag(record: Event | Alert) -> tuple[str, str]:
    """The tag that holds the latest event or alert of a name: when, at which step, how bad, what."""
    what = "alert" if isinstance(record, Alert) else "event"
    time = datetime.fromtimestamp(record.time / 1e9, UTC).isoformat(timespec="seconds")
    step = "" if record.step is None else f" step {record.step}"
    said = record.message if isinstance(record, Alert) else record.body
    told = " ".join(
        each
        for each in (str(said) if said else "", dumps(redact(record.attrs), indent=None) if record.attrs else "")
        if each
    )
    text = f"{severity_word(record.severity)} {time}{step}: {told}".rstrip(": ")
    return names.legal_key(f"{what}.{record.name}"), names.shorten(text, names.LONGEST_TAG)
