"""What a script says about its run, at its start and later: tags, notes, a name. Nothing here raises or waits."""

from collections.abc import Mapping
from typing import Any, Protocol

from stepscope.model import names
from stepscope.model.edits import LONGEST_NAME, LONGEST_NOTES, MOST_TAGS, read_tags
from stepscope.sdk.context import text_of
from stepscope.sdk.outcomes import Outcomes
from stepscope.sdk.settings import Settings


class Described(Protocol):
    """As much of a run as is described."""

    name: str | None
    outcomes: Outcomes
    status: str

    def event(self, name: str, data: Mapping[str, Any] | None = None) -> None:
        """Record that something happened."""


def described(settings: Settings) -> dict[str, Any]:
    """What a run is started with, as attributes of its first event."""
    said = {"tags": dict(settings.tags), "notes": settings.notes, "group": settings.group}
    return {key: value for key, value in {**said, "job_type": settings.job_type}.items() if value}


def tag(run: Described, /, *tags: str, **named: Any) -> None:
    """Tag the run: `run.tag("baseline", team="red")`. A tag that it has gets the new value.

    Tags that people change later, on the page or with a command, win over these.
    """
    try:
        _edit(run, {"tags": {**read_tags(tags), **read_tags(named)}})
    except Exception as error:
        run.outcomes.reject("tag", type(error).__name__)


def untag(run: Described, /, *names: str, **unknown: Any) -> None:
    """Remove tags from the run, by name."""
    run.outcomes.reject_arguments("untag", unknown)
    _edit(run, {"tags": {text_of(name).strip(): None for name in names}})


def note(run: Described, /, text: str | None = None, **unknown: Any) -> None:
    """Set the notes of the run, in place of those it had."""
    run.outcomes.reject_arguments("note", unknown)
    if text is None:
        run.outcomes.reject("note", "no text was given")
        return
    _edit(run, {"notes": text_of(text)[:LONGEST_NOTES]})


def rename(run: Described, /, name: str = "", **unknown: Any) -> None:
    """Give the run another name; its id stays."""
    run.outcomes.reject_arguments("rename", unknown)
    wanted = text_of(name).strip()[:LONGEST_NAME]
    if not wanted:
        run.outcomes.reject("rename", "a name must not be empty")
        return
    run.name = wanted
    _edit(run, {"name": wanted})


def _edit(run: Described, change: dict[str, Any]) -> None:
    tags = change.get("tags")
    if tags is not None and not 0 < len(tags) <= MOST_TAGS:
        if tags:
            run.outcomes.reject("tag", f"more than {MOST_TAGS} tags at once")
        return
    run.event(names.EVENT_EDITED, change)
