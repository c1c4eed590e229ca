"""wandb's interface on top of a run: `import stepscope.compat.wandb as wandb`, and a script runs as it is."""

import re
from typing import Any

import stepscope
from stepscope.compat import media, shim
from stepscope.compat.shim import AlertLevel as AlertLevel
from stepscope.compat.shim import Config, Run, Summary, as_dict
from stepscope.sdk.context import text_of

Image = Table = Histogram = Video = Audio = Html = Object3D = Molecule = Plotly = Artifact = media.Media
Error = CommError = UsageError = type("Error", (Exception,), {"__doc__": "Never raised; there to be caught."})

_run: Run | None = None
_ABSENT = frozenset((
    "Api", "ArtifactTTL", "Classes", "EvalTable", "Graph", "JoinedTable", "agent", "agents", "api", "apis", "attach",
    "box3d", "catboost", "controller", "data_types", "ensure_configured", "env", "errors", "gym", "integration",
    "jupyter", "keras", "lightgbm", "link_model", "log_model", "mark_preempting", "pin_config_keys", "plot",
    "plot_table", "profiler", "require", "restore", "sacred", "sdk", "sklearn", "sweep", "teardown", "tensorboard",
    "tensorflow", "termerror", "termlog", "termsetup", "termwarn", "use_artifact", "use_model", "util", "visualize",
    "xgboost",
))  # fmt: skip
"""What else wandb has; here it is absent, and counted."""


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
    settings = as_dict(config)
    begun = stepscope.init(
        project=_text(project),
        name=_text(name),
        run_id=_safe(id),
        config=settings,
        disabled=True if mode == "disabled" else None,
    )
    given = {"entity": entity, "group": group, "job_type": job_type, "notes": notes}
    said = {key: text for key, value in given.items() if (text := _text(value)) is not None}
    words = shim.tags_of(tags)
    _run = Run(begun, settings or {}, said, words)
    if said or words:
        begun.event("wandb.init", {**said, "tags": words} if words else said)
    for key in (*(["dir"] if dir is not None else []), *others):
        _run.ignore(f"init.{key}")
    if config is not None and settings is None:
        _run.ignore("init.config")
    return _run


def log(data: Any, step: Any = None, commit: bool | None = None, **others: Any) -> None:
    """Record values; see `Run.log`."""
    if _run is not None:
        _run.log(data, step, commit, **others)


def define_metric(name: str, step_metric: Any = None, summary: str | None = None, **others: Any) -> shim.Definition:
    """Say which metric is the axis of others, and how they are summed up; see `Run.define_metric`."""
    if _run is None:
        return shim.Definition(text_of(name), None, None)
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
    """`run`, `config` and `summary` of the run that goes on, empty before `init`; what else wandb has is absent."""
    if name == "run":
        return _run
    if name == "config":
        return Config(lambda changed: None, {}) if _run is None else _run.config
    if name == "summary":
        return Summary() if _run is None else _run.summary
    if name in _ABSENT:
        if _run is not None:
            _run.ignore(name)
        return shim.Absent(name)
    raise AttributeError(f"stepscope.compat.wandb has no {name!r}")


def _text(given: Any) -> str | None:
    text = "" if given is None else text_of(given)
    return text if text.strip() else None


def _safe(given: Any) -> str | None:
    """An id that can be a folder's name."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", _text(given) or "").strip("-._")[:128]
    return text or None
