"""Lines as JSON, column by column: raw points when they fit, else buckets with their extremes."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stepscope.hub.questions.series import Axis, Buckets, Raw, Series
from stepscope.hub.store import exact
from stepscope.hub.store.run_catalog import step_of
from stepscope.model.records import Attrs
from stepscope.wire.plain import plain, word


def line(key: str, rank: int | None, series: Series, x: Axis, attrs: Attrs | None = None) -> dict[str, Any]:
    """One line. Of `total` points `shown` marks are given; `flags` has 1 for NaN, 2 for Infinity, 4 for -Infinity."""
    shape: Literal["raw", "buckets"] = "raw" if series.buckets is None else "buckets"
    columns = _buckets(series.buckets, x) if series.buckets is not None else _raw(series.raw, x)
    return {
        "key": key,
        "rank": rank,
        "attrs": None if attrs is None else plain(attrs),
        "scope": series.scope,
        "unit": series.unit,
        "axes": series.axes,
        "ranks": series.ranks,
        "total": series.total,
        "shown": series.shown,
        "superseded": series.superseded,
        "flags": series.flags,
        "origin": round(series.origin / 1e9, 6) if series.origin else None,
        "shape": shape,
        "aligned": series.aligned,
        "columns": columns,
    }


def _raw(raw: Raw | None, x: Axis) -> dict[str, list[Any]]:
    if raw is None:
        return {name: [] for name in ("x", "value", "step", "time", "rank", "attempt")}
    values = spelled(raw.value)
    if raw.rest is not None:
        exact.patch(values, raw.value, raw.rest)
    return {
        "x": _along(raw.x, x),
        "value": values,
        "step": _steps(raw.step),
        "time": _along(raw.time, "time"),
        "rank": raw.rank.tolist(),
        "attempt": raw.attempt.tolist(),
    }


def _buckets(buckets: Buckets, x: Axis) -> dict[str, list[Any]]:
    low, high, last = _known(buckets.low), _known(buckets.high), spelled(buckets.last)
    if buckets.rests is not None:
        columns = zip((low, high, last), (buckets.low, buckets.high, buckets.last), buckets.rests, strict=True)
        for shown, values, rest in columns:
            exact.patch(shown, values, rest)
    return {
        "x": _along(buckets.first, x),
        "x_last": _along(buckets.last_x, x),
        "min": low,
        "max": high,
        "mean": _known(buckets.mean),
        "last": last,
        "count": buckets.count.tolist(),
        "flags": buckets.flags.tolist(),
    }


def _along(values: npt.NDArray[Any], x: Axis) -> list[Any]:
    """Steps as they are, times in seconds to the microsecond."""
    return list(values.tolist()) if x == "step" else list(np.round(values / 1e9, 6).tolist())


def _steps(values: npt.NDArray[Any]) -> list[int | None]:
    return [step_of(value) for value in values.tolist()]


def spelled(values: npt.NDArray[Any]) -> list[Any]:
    """Numbers with those that are not finite as words."""
    plain: list[Any] = values.tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        plain[at] = word(plain[at])
    return plain


def _known(values: npt.NDArray[Any]) -> list[Any]:
    """Numbers of finite values, None where there were none; a sum too great for a float stays a word."""
    plain: list[Any] = values.tolist()
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        plain[at] = None if np.isnan(values[at]) else word(plain[at])
    return plain
