"""wandb's interface on top of a run: with `import stepscope.compat.wandb as wandb` scripts run unchanged."""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import stepscope
from stepscope.dialects.wandb.shim import absent, tensorboard_sync
from stepscope.dialects.wandb.shim import media as wandb_media
from stepscope.dialects.wandb.shim import start as wandb_start
from stepscope.dialects.wandb.shim.absent import CommError as CommError
from stepscope.dialects.wandb.shim.absent import Error as Error
from stepscope.dialects.wandb.shim.absent import PartialModule, missing
from stepscope.dialects.wandb.shim.absent import UsageError as UsageError
from stepscope.dialects.wandb.shim.artifacts import Artifact as Artifact
from stepscope.dialects.wandb.shim.artifacts import artifact_of
from stepscope.dialects.wandb.shim.media import Audio as Audio
from stepscope.dialects.wandb.shim.media import Classes as Classes
from stepscope.dialects.wandb.shim.media import Graph as Graph
from stepscope.dialects.wandb.shim.media import Histogram as Histogram
from stepscope.dialects.wandb.shim.media import Html as Html
from stepscope.dialects.wandb.shim.media import Image as Image
from stepscope.dialects.wandb.shim.media import JoinedTable as JoinedTable
from stepscope.dialects.wandb.shim.media import Molecule as Molecule
from stepscope.dialects.wandb.shim.media import Object3D as Object3D
from stepscope.dialects.wandb.shim.media import Plotly as Plotly
from stepscope.dialects.wandb.shim.media import Table as Table
from stepscope.dialects.wandb.shim.media import Video as Video
from stepscope.dialects.wandb.shim.plots import plot as plot
from stepscope.dialects.wandb.shim.plots import plot_table as plot_table
from stepscope.dialects.wandb.shim.run_interface import AlertLevel as AlertLevel
from stepscope.dialects.wandb.shim.run_interface import Definition, Run, Summary
from stepscope.dialects.wandb.shim.start import Config, as_dict
from stepscope.extend import disabled_run, text_of
from stepscope.model.names import EVENT_CONFIG

__version__ = "0.31.0"
"""The version of wandb whose interface is provided."""
data_types = wandb_media
errors: Any = PartialModule(
    "errors",
    **{name: found for name, found in vars(absent).items() if isinstance(found, type) and issubclass(found, Error)},
)

_run: Run | None = None
_early = Config()
"""Configuration set before `init`, for the next run."""
_missed: set[str] = set()
"""Ignored features used before the run started, to be counted in it."""


class Settings:
    """Accepts and ignores all settings of wandb."""

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
    resume: Any = None,
    reinit: Any = None,
    sync_tensorboard: Any = None,
    fork_from: Any = None,
    resume_from: Any = None,
    **others: Any,
) -> Run:
    """Start a run like `wandb.init`, or return the current one unless `reinit` or another `id` is given.

    A run started by `stepscope.init` is joined. The `id` of an earlier run continues that run, with `resume` after
    its last step. `fork_from`, as RUN?_step=N, names the parent of the run, `resume_from` the run that continues
    after this step. `mode="disabled"` records nothing.
    `sync_tensorboard` also records what is written to TensorBoard. Unsupported arguments are counted as ignored.
    Raises only ConfigError, when a STEPSCOPE_* variable or stepscope.yaml is invalid.
    """
    if sync_tensorboard:
        _sync_tensorboard()
    start = wandb_start.read({key: value for key, value in locals().items() if key in wandb_start.VARIABLES})
    start = wandb_start.continued(wandb_start.forked(start, fork_from), resume_from)
    active = _live()
    if active is not None and active.is_requested(start) and not wandb_start.starts_new_run(reinit):
        active.ignore_other(start, "entity", "project", "name", "notes", "tags", "group", "job_type")
        if as_dict(config) != {}:
            active.ignore("init.config")
        return active
    finish()
    run = _begin(start, config)
    if start.resume is not None and not start.resumes:
        run.ignore("init.resume")
    if fork_from is not None and start.parent is None:
        run.ignore("init.fork_from")
    if resume_from is not None and start.from_step is None:
        run.ignore("init.resume_from")
    if reinit == "create_new":
        run.ignore("init.reinit")
    for key in (*(["dir"] if dir is not None else []), *others):
        run.ignore(f"init.{key}")
    return run


def _begin(start: wandb_start.Start, config: Any) -> Run:
    global _run, _early
    given = as_dict(config)
    settings = {**_early, **(given or {})}
    current = None if start.disabled else stepscope.current_run()
    if current is not None and current.status != "running":  # a forked child still has the run of its parent
        current = None
    if start.disabled:
        begun: stepscope.Run = disabled_run()
    else:
        begun = current or stepscope.init(start.project, start.name, settings, run_id=start.id, **start.settings)
    _run, _early = Run(begun, start, settings, ours=current is None), Config()
    if current is not None:
        _run.ignore_other(start, "project", "id", "name")
        _run.describe(start)
        if settings:
            begun.event(EVENT_CONFIG, settings)
    elif settings and start.id is not None:  # an attempt that resumes the run keeps what was set apart from the start
        begun.event(EVENT_CONFIG, settings)
    if start.entity:
        begun.event("wandb.init", {"entity": start.entity})
    while _missed:
        _run.ignore(_missed.pop())
    if given is None:
        _run.ignore("init.config")
    return _run


def _live() -> Run | None:
    """The active run, if any."""
    return None if _run is None or _run.ended else _run


def _ignore(what: str) -> None:
    run = _live()
    if run is None:
        _missed.add(what)
    else:
        run.ignore(what)


def log(data: Any, step: Any = None, commit: bool | None = None, **others: Any) -> None:
    """Record values; see `Run.log`."""
    run = _live()
    if run is not None:
        run.log(data, step, commit, **others)


def define_metric(name: str, step_metric: Any = None, summary: str | None = None, **others: Any) -> Definition:
    """Define the axis of metrics, and how they are summarized; see `Run.define_metric`."""
    run = _live()
    if run is None:
        return Definition(text_of(name), None, None)
    return run.define_metric(name, step_metric, summary, **others)


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run; an exit code other than 0 means that it failed."""
    run = _live()
    if run is not None:
        run.finish(exit_code)


def alert(title: str, text: str = "", level: Any = None, **others: Any) -> None:
    """Record an alert."""
    run = _live()
    if run is not None:
        run.alert(title, text, level, **others)


def watch(*arguments: Any, **others: Any) -> None:
    """Ignored and counted; `stepscope.integrations.torch.instrument()` records the gradient norm."""
    _ignore("watch")


def unwatch(*arguments: Any, **others: Any) -> None:
    """Do nothing."""


def save(*arguments: Any, **others: Any) -> list[str]:
    """Record files; see `Run.save`."""
    run = _live()
    return [] if run is None else run.save(*arguments, **others)


def log_artifact(given: Any, *arguments: Any, **others: Any) -> Artifact:
    """Record an artifact; see `Run.log_artifact`. Without a run nothing is recorded, and that is counted."""
    run = _live()
    if run is not None:
        return run.log_artifact(given, *arguments, **others)
    _ignore("log_artifact")
    return artifact_of(given)


def use_artifact(given: Any, *arguments: Any, **others: Any) -> Artifact:
    """Record that an artifact is used; see `Run.use_artifact`. Without a run that is counted as ignored."""
    run = _live()
    if run is not None:
        return run.use_artifact(given, *arguments, **others)
    _ignore("use_artifact")
    return artifact_of(given)


_SWEEPS = (
    "Stepscope has no sweeps: search with Optuna (pip install optuna), one run for each trial in one group; "
    "docs/how/run-a-sweep.md shows it"
)


def sweep(*arguments: Any, **others: Any) -> str:
    """Raise UsageError: a search that is silently skipped would train nothing."""
    raise UsageError(_SWEEPS)


def agent(*arguments: Any, **others: Any) -> None:
    """Raise UsageError, as `sweep` does."""
    raise UsageError(_SWEEPS)


def login(*arguments: Any, **others: Any) -> bool:
    """Do nothing: no login is needed."""
    return True


def setup(*arguments: Any, **others: Any) -> None:
    """Do nothing."""


def _sync_tensorboard(*arguments: Any, **others: Any) -> None:
    """Also record what is written to TensorBoard, in the active run."""
    tensorboard_sync.follow(_Board())


class _Board:
    """Records what is written to TensorBoard in the active run."""

    def log(self, data: dict[str, Any], step: Any) -> None:
        """Record numbers and histograms; media are counted as rejected, as in `log`."""
        log(data, step)

    def text(self, tag: str, text: str, step: Any) -> None:
        """Record text as an event."""
        run = _live()
        if run is not None:
            run.log_text(tag, text, step)

    def hyperparameters(self, values: Mapping[str, Any]) -> None:
        """Add hyperparameters to the configuration."""
        run = _live()
        if run is not None:
            run.config.update(values)


join = finish
"""The former name of `finish`."""
absent.report = _ignore
util = PartialModule("util", generate_id=wandb_start.generate_id)
tensorboard = PartialModule("tensorboard", patch=_sync_tensorboard, unpatch=lambda: tensorboard_sync.follow(None))


def __getattr__(name: str) -> Any:
    """`run`, `config` and `summary` of the current run, empty before `init`; placeholders for wandb's other names."""
    run = _live()
    if name == "run":
        return run
    if name == "config":
        return _early if run is None else run.config
    if name == "summary":
        return Summary() if run is None else run.summary
    if name.startswith("_"):
        raise AttributeError(f"stepscope.compat.wandb has no {name!r}")
    return missing(name)


class _Module(ModuleType):
    """The class of this module: assigning `config` or `summary` updates that of the run."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("config", "summary"):
            super().__setattr__(name, value)
        elif value is not getattr(self, name):
            getattr(self, name).update(value if name == "config" else as_dict(value) or {})


sys.modules[__name__].__class__ = _Module
