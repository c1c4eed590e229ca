"""All detectors: the built-in ones, and those registered by other packages as entry points."""

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from stepscope.diagnosis.detector import RunDetector, SeriesDetector
from stepscope.diagnosis.detectors import (
    accuracy,
    changes,
    checkpoint_growth,
    clip_fraction,
    clocks,
    constant,
    creep,
    desync,
    divergence,
    entropy,
    exploding_gradients,
    gpu_idle,
    hang,
    kl,
    learning_rate,
    level_shift,
    logs,
    loss_scale,
    lost_records,
    not_finite,
    not_learning,
    overfit,
    plateau,
    resume,
    retries,
    reward_hacking,
    slow_link,
    spikes,
    stalls,
    start_settings,
    steps,
    stragglers,
    throughput,
    value_function,
    vanishing_gradients,
)
from stepscope.diagnosis.exits import Exits
from stepscope.diagnosis.finding import Kind
from stepscope.diagnosis.guard import FAILED
from stepscope.diagnosis.raised import RaisedAlerts

GROUP = "stepscope.detectors"
"""The group of entry points; each names a class with the shape of `SeriesDetector` or `RunDetector`."""
log = logging.getLogger("stepscope")

SERIES: tuple[type[SeriesDetector], ...] = (
    changes.Changes,
    spikes.Spikes,
    constant.Constant,
    level_shift.LevelShift,
    divergence.Divergence,
    not_learning.NotLearning,
    plateau.Plateau,
    resume.Resume,
    steps.Steps,
    vanishing_gradients.VanishingGradients,
    exploding_gradients.ExplodingGradients,
    loss_scale.LossScale,
    learning_rate.LearningRate,
    accuracy.Accuracy,
    overfit.Overfit,
    kl.Kl,
    entropy.Entropy,
    clip_fraction.ClipFraction,
    value_function.ValueFunction,
    constant.DeadEnvironment,
    reward_hacking.RewardHacking,
    throughput.Throughput,
    creep.Creep,
    gpu_idle.GpuIdle,
    retries.Retries,
)
RUN: tuple[type[RunDetector], ...] = (
    stalls.Stalls,
    checkpoint_growth.CheckpointGrowth,
    throughput.Pace,
    stragglers.Stragglers,
    slow_link.SlowLink,
    clocks.Clocks,
    start_settings.StartSettings,
    logs.Logs,
)
_OWN: tuple[Any, ...] = (desync.Desync, hang.Hang, lost_records.LostRecords, not_finite.NotFinite, Exits, RaisedAlerts)
"""Detectors that the engine calls directly."""


@lru_cache(maxsize=1)
def installed() -> tuple[Any, ...]:
    """Return the detectors registered by other packages; one that cannot be loaded is logged and skipped."""
    from importlib.metadata import entry_points  # slow to import, and only others' detectors need it

    found = []
    for point in entry_points(group=GROUP):
        try:
            made = point.load()
            if not all(isinstance(kind, Kind) for kind in made.KINDS):
                raise TypeError("KINDS must be a tuple of stepscope.diagnosis.finding.Kind")
        except Exception as error:
            log.warning("stepscope: the detector %r (%s) cannot be loaded: %r", point.name, point.value, error)
            continue
        found.append(made)
    return tuple(found)


def is_series(detector: Any) -> bool:
    """Return whether a detector watches single series."""
    return hasattr(detector, "ROLES")


def kinds(detectors: Iterable[Any] = ()) -> Mapping[str, Kind]:
    """Return every kind of finding by name, of the built-in detectors and the given ones."""
    found = {kind.name: kind for each in (*SERIES, *RUN, *_OWN, *detectors) for kind in each.KINDS}
    return {FAILED.name: FAILED, **found}


KINDS = tuple(kinds())
"""All kinds of finding, except those of installed detectors."""
