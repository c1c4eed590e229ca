"""wandb's interface on top of a run: `import stepscope.compat.wandb as wandb`, and a script runs as it is."""

import argparse
import re
from collections.abc import Mapping
from typing import Any

import stepscope
from stepscope.compat import media, shim
from stepscope.compat.shim import Config, Run, Summary

Image = Table = Histogram = Video = Audio = Html = Object3D = Molecule = Plotly = Artifact = media.Media
Error = CommError = UsageError = type("Error", (Exception,), {"__doc__": "Never raised; there to be caught."})

_run: Run | None = None
_TAKEN = ("entity", "group", "job_type", "tags", "notes")
"""Arguments of `init` that describe the run; they are recorded with it."""


class Settings:
    """Takes any settings of wandb; none has a meaning here."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.__dict__.update(settings)


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: Any = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Any = None,
    config: Any = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    **others: Any,
) -> Run:
    """Start a run, as `wandb.init`; one that goes on is finished first. `mode="disabled"` records nothing.

    `id` with the id of an earlier run goes on with it. What has no meaning here is counted as ignored. ConfigError when
    a STEPSCOPE_* variable or stepscope.yaml is wrong, and nothing else.
    """
    global _run
    finish()
    begun = stepscope.init(
        project=_text(project),
        name=_text(name),
        run_id=_safe(id),
        config=as_dict(config),
        disabled=True if mode == "disabled" else None,
    )
    _run = Run(begun, as_dict(config))
    said = dict(zip(_TAKEN, (entity, group, job_type, tags, notes), strict=True))
    given = {key: value for key, value in said.items() if value}
    if given:
        begun.event("wandb.init", {key: list(value) if key == "tags" else str(value) for key, value in given.items()})
    for key in (*(["dir"] if dir is not None else []), *others):
        _run.ignore(f"init.{key}")
    if config is not None and not as_dict(config):
        _run.ignore("init.config")
    return _run


def log(data: Any, step: Any = None, commit: bool | None = None, **others: Any) -> None:
    """Record values; see `Run.log`."""
    if _run is not None:
        _run.log(data, step, commit, **others)


def define_metric(name: str, step_metric: Any = None, summary: str | None = None, **others: Any) -> shim.Definition:
    """Say which metric is the axis of others, and how they are summed up; see `Run.define_metric`."""
    if _run is None:
        return shim.Definition(str(name), None, None)
    return _run.define_metric(name, step_metric, summary, **others)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run; one with another exit code than 0 has failed."""
    global _run
    run, _run = _run, None
    if run is not None:
        run.finish(exit_code)


def alert(title: str, text: str = "", level: Any = None, **others: Any) -> None:
    """Record an alert."""
    if _run is not None:
        _run.alert(title, text, level, **others)


def watch(*arguments: Any, **others: Any) -> None:
    """Do nothing, counted; `stepscope.integrations.torch.instrument()` gives the gradient norm."""
    if _run is not None:
        _run.ignore("watch")


def unwatch(*arguments: Any, **others: Any) -> None:
    """Do nothing."""


def save(*arguments: Any, **others: Any) -> None:
    """Do nothing, counted: files are not kept."""
    if _run is not None:
        _run.ignore("save")


def log_artifact(*arguments: Any, **others: Any) -> None:
    """Do nothing, counted: files are not kept."""
    if _run is not None:
        _run.ignore("log_artifact")


def login(*arguments: Any, **others: Any) -> bool:
    """Nobody needs to log in."""
    return True


def setup(*arguments: Any, **others: Any) -> None:
    """Nothing needs to be set up."""


def __getattr__(name: str) -> Any:
    """`run`, `config` and `summary` of the run that goes on; before `init` they are empty."""
    if name == "run":
        return _run
    if name == "config":
        return Config(lambda changed: None, {}) if _run is None else _run.config
    if name == "summary":
        return Summary() if _run is None else _run.summary
    raise AttributeError(f"stepscope.compat.wandb has no {name!r}")


def as_dict(config: Any) -> dict[str, Any]:
    """A configuration as a dict: of a mapping, or the arguments of a program; empty for what is neither."""
    if isinstance(config, argparse.Namespace):
        return vars(config)
    if isinstance(config, (Mapping, Config)):
        return {str(key): config[key] for key in config.keys()}  # noqa: SIM118
    return {}


def _text(given: Any) -> str | None:
    return str(given) if given is not None and str(given).strip() else None


def _safe(given: Any) -> str | None:
    """An id that can be a folder's name."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", str(given or "")).strip("-._")[:128]
    return text or None
