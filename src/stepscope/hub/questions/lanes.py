"""Spans as columns for drawing, one lane for each rank and thread; words that repeat are told once."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from stepscope.hub.questions import shapes
from stepscope.hub.questions.lane_rows import ThinSpans


def lanes(spans: ThinSpans, owners: Mapping[int, str]) -> dict[str, Any]:
    """Columns over all spans that have an owner; times count from the beginning in ms, and open ones last null."""
    runs = spans.run.tolist()
    seen = np.array([run in owners for run in runs], dtype=bool)
    times, durations = spans.time[seen], spans.duration[seen]
    begin = int(times.min()) if len(times) else 0
    end = int((times + np.maximum(durations, 0)).max()) if len(times) else 0

    def kept(values: Iterable[Any]) -> list[Any]:
        return list(values) if seen.all() else [value for value, keep in zip(values, seen, strict=True) if keep]

    names, name = _told_once(kept(spans.name))
    traces, trace = _told_once(kept(spans.trace))
    placed, lane = _told_once(kept(zip(runs, spans.rank.tolist(), spans.thread, strict=True)), ordered=True)
    lasts = np.round(durations / 1e6, 6).tolist()
    return {
        "begin": shapes.seconds(begin),
        "duration_ms": shapes.milliseconds(end - begin),
        "open": int((durations < 0).sum()),
        "lanes": [{"run": owners[run], "rank": rank, "thread": thread} for run, rank, thread in placed],
        "names": names,
        "traces": traces,
        "columns": {
            "span_id": kept(spans.id),
            "parent_id": kept(spans.parent),
            "trace": trace,
            "name": name,
            "lane": lane,
            "start": np.round((times - begin) / 1e6, 6).tolist(),
            "duration": [None if each < 0 else each for each in lasts],
            "status": spans.status[seen].tolist(),
            "step": kept(spans.step),
        },
    }


def _told_once(values: list[Any], *, ordered: bool = False) -> tuple[list[Any], list[int]]:
    """Distinct values, and for each value which of them it is."""
    distinct = list(dict.fromkeys(values))
    if ordered:
        distinct.sort()
    number = {value: at for at, value in enumerate(distinct)}
    return distinct, [number[value] for value in values]
