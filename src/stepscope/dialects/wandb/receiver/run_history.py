"""The history of a run as rows by step, read from the store: numbers, histograms and other values."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stepscope.dialects.wandb.wire import EVENT_VALUES
from stepscope.extend.receiver import LAST, NO_STEP, Engine, literal, read_log_rows
from stepscope.model.records import Event

MAX_ROWS = 100_000
_NOT_HISTORY = "NOT startsWith(key, 'system/') AND NOT startsWith(key, 'stepscope/')"


class RunHistory:
    """The rows of one run; `origin` is its start time in nanoseconds."""

    def __init__(self, engine: Engine, run: int, origin: int) -> None:
        self._engine, self._run, self._origin = engine, run, origin
        found = engine.query(f"SELECT DISTINCT series, key, axis FROM series WHERE run = {run} AND {_NOT_HISTORY}")
        self._series = {series: (key, axis) for series, key, axis in found.rows("series", "key", "axis")}

        self.keys = sorted({key for key, _ in self._series.values()})
        """The metric keys."""

    def last_values(self) -> dict[str, float]:
        """Return the last value of each metric."""
        if not self._series:
            return {}
        among = literal.integers(self._series)
        found = self._engine.query(f"SELECT series, {LAST} AS last FROM totals WHERE series IN {among} GROUP BY series")
        return {self._series[series][0]: value for series, value in found.rows("series", "last")}

    def last_step(self) -> int:
        """Return the highest step; -1 when there is none."""
        main = [series for series, (_, axis) in self._series.items() if not axis]
        found = self._steps_of_others(main, [f"step > {NO_STEP}"], "ORDER BY step DESC LIMIT 1")
        if main:
            among = literal.integers(main)
            found += self._engine.query(f"SELECT maxMerge(last_step) AS step FROM totals WHERE series IN {among}")[
                "step"
            ]
        return max((int(step) for step in found if step > NO_STEP), default=-1)

    def steps(self) -> list[int]:
        """Return the steps that have a row, all or evenly sampled."""
        main = [series for series, (_, axis) in self._series.items() if not axis]
        return _chosen(self._steps(main, [f"step > {NO_STEP}"]), MAX_ROWS)

    def rows(
        self, keys: Sequence[str] = (), low: int | None = None, high: int | None = None, samples: int | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of steps in [low, high), all or evenly sampled; with `keys`, rows that have all of them."""
        bounds = [f"step > {NO_STEP}"]
        bounds += [f"step >= {low}"] if low is not None else []
        bounds += [f"step < {high}"] if high is not None else []
        main = [series for series, (_, axis) in self._series.items() if not axis]
        wanted = [series for series in main if not keys or self._series[series][0] in keys]
        steps = self._steps(wanted, bounds)
        steps = _chosen(steps, min(samples or MAX_ROWS, MAX_ROWS))
        if not steps:
            return []
        among = f"step >= {steps[0]} AND step <= {steps[-1]}"
        if len(steps) <= 5000:
            among = f"step IN {literal.integers(steps)}"
        found: dict[int, dict[str, Any]] = {step: {} for step in steps}
        by_time: dict[int, int] = {}
        self._numbers(main, among, found, by_time)
        self._on_axes(by_time, found)
        self._histograms(main, among, found)
        self._others(found)
        rows = [self._row(step, values) for step, values in sorted(found.items()) if values]
        return [row for row in rows if all(key in row for key in keys)] if keys else rows

    def _steps(self, series: Sequence[int], bounds: Sequence[str]) -> list[int]:
        """Return the steps that have a value of some series, or a value that is not a number."""
        steps = set(self._steps_of_others(series, bounds))
        if series:
            where = " AND ".join((f"series IN {literal.integers(series)}", *bounds))
            steps.update(self._engine.query(f"SELECT DISTINCT step FROM metrics WHERE {where}")["step"])
        return sorted(steps)

    def _steps_of_others(self, series: Sequence[int], bounds: Sequence[str], order: str = "") -> list[int]:
        """Return the steps that have a histogram of some series, a text, a list or media."""
        asked = [f"logs WHERE run = {self._run} AND name = {literal.text(EVENT_VALUES)}"]
        asked += [f"histograms WHERE kind = 0 AND series IN {literal.integers(series)}"] if series else []
        queries = [f"SELECT DISTINCT step FROM {' AND '.join((each, *bounds))} {order}" for each in asked]
        return [step for each in queries for step in self._engine.query(each)["step"]]

    def _row(self, step: int, values: dict[str, Any]) -> dict[str, Any]:
        time = values.pop("", 0)
        return {"_step": step, "_timestamp": time / 10**9, "_runtime": max(time - self._origin, 0) / 10**9, **values}

    def _numbers(
        self, series: Sequence[int], among: str, found: dict[int, dict[str, Any]], by_time: dict[int, int]
    ) -> None:
        if not series:
            return
        answer = self._engine.query(
            f"SELECT series, step, time, value, rest FROM metrics WHERE series IN {literal.integers(series)} "
            f"AND {among} ORDER BY attempt, time"
        )
        for number, step, time, value, rest in answer.rows("series", "step", "time", "value", "rest"):
            row = found.get(step)
            if row is not None:
                row[self._series[number][0]] = int(value) + rest if rest else value
                row[""] = time
                by_time[time] = step

    def _on_axes(self, by_time: Mapping[int, int], found: dict[int, dict[str, Any]]) -> None:
        """Add values stored on a custom step axis, joined to their row by time."""
        series = [number for number, (_, axis) in self._series.items() if axis]
        if not series or not by_time:
            return
        answer = self._engine.query(
            f"SELECT series, time, value FROM metrics WHERE series IN {literal.integers(series)} "
            f"AND time BETWEEN {min(by_time)} AND {max(by_time)} ORDER BY attempt, time"
        )
        for number, time, value in answer.rows("series", "time", "value"):
            if time in by_time:
                found[by_time[time]][self._series[number][0]] = value

    def _histograms(self, series: Sequence[int], among: str, found: dict[int, dict[str, Any]]) -> None:
        if not series:
            return
        answer = self._engine.query(
            f"SELECT series, step, time, low, high, bounds, counts FROM histograms "
            f"WHERE series IN {literal.integers(series)} AND kind = 0 AND {among} ORDER BY attempt, time"
        )
        for number, step, time, low, high, bounds, counts in answer.rows(
            "series", "step", "time", "low", "high", "bounds", "counts"
        ):
            row = found.get(step)
            if row is not None:
                bins = [low, *bounds, high]
                row[self._series[number][0]] = {"_type": "histogram", "bins": bins, "values": list(counts)}
                row.setdefault("", time)

    def _others(self, found: dict[int, dict[str, Any]]) -> None:
        bounds = f"step BETWEEN {min(found)} AND {max(found)}"
        where = f"run = {self._run} AND name = {literal.text(EVENT_VALUES)} AND {bounds}"
        for each in read_log_rows(self._engine, "logs", where, "attempt, time"):
            row = found.get(each.record.step) if each.record.step is not None else None
            if row is not None and isinstance(each.record, Event):
                row.update(each.record.attrs)
                row.setdefault("", each.record.time)

    def machine_rows(self, samples: int) -> list[dict[str, Any]]:
        """Return rows of system metrics by time, evenly sampled, with the prefix `system.`."""
        answer = self._engine.query(
            f"SELECT s.key AS key, m.time AS time, m.value AS value FROM metrics AS m INNER JOIN series AS s "
            f"ON s.series = m.series WHERE s.run = {self._run} AND startsWith(s.key, 'system/') ORDER BY m.time"
        )
        found: dict[int, dict[str, Any]] = {}
        for key, time, value in answer.rows("key", "time", "value"):
            found.setdefault(time, {})["system." + key.removeprefix("system/")] = value
        return [
            {"_timestamp": time / 10**9, "_runtime": max(time - self._origin, 0) / 10**9, "_wandb": True, **found[time]}
            for time in _chosen(sorted(found), samples)
        ]


def _chosen(steps: list[int], most: int) -> list[int]:
    """Sample steps evenly, including the first and the last."""
    if len(steps) <= most or most < 2:
        return steps[: max(most, 1)] if len(steps) > most else steps
    scale = (len(steps) - 1) / (most - 1)
    return [steps[round(at * scale)] for at in range(most)]


def read_spec(text: Any) -> Mapping[str, Any]:
    """Parse a sampledHistory spec: keys, step bounds and the number of samples."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, Mapping) else {}
