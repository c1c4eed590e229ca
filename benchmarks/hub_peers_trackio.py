"""Trackio's store, asked for a long series as its page asks."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any

from benchmarks.timing import asked


def child(params: dict[str, Any]) -> dict[str, float]:
    """Put points into a fresh store, and ask as its server does for a chart; a point comes before each question."""
    import trackio
    from trackio.server import get_logs
    from trackio.sqlite_storage import SQLiteStorage

    run = trackio.init(project="bench", name="long", embed=False, auto_log_cpu=False, auto_log_gpu=False)
    run.log({"loss": 0.0}, step=0)
    run.finish()
    path = str(SQLiteStorage.get_project_db_path("bench"))
    points = params["points"]
    _add(path, range(1, points), {points // 3: params["spike"]})
    following = iter(range(points, points + 100))

    def ask() -> Any:
        _add(path, [next(following)], {})  # a live run: what was read before is out of date
        return get_logs("bench", "long")

    stats, answer = asked(params["rounds"], ask)
    lost = float(params["spike"] not in [row.get("loss") for row in answer])
    return stats | {"of": float(points), "shown": float(len(answer)), "spikes_lost": lost}


def _add(path: str, steps: Any, spikes: dict[int, float]) -> None:
    """Add rows like those that its own `log` wrote."""
    base = sqlite3.connect(path)
    with base:
        names = [row[1] for row in base.execute("PRAGMA table_info(metrics)")]
        first = dict(zip(names, base.execute("SELECT * FROM metrics ORDER BY id LIMIT 1").fetchone(), strict=True))
        first.pop("id")
        begun = datetime.now(UTC).timestamp() - 10**6

        def row(step: int) -> tuple[Any, ...]:
            value = spikes.get(step, step % 97 / 97)
            moment = datetime.fromtimestamp(begun + step, UTC).isoformat()
            changed = {"timestamp": moment, "step": step, "metrics": json.dumps({"loss": value})}
            if "log_id" in first:
                changed["log_id"] = f"log-{step}"
            return tuple((first | changed).values())

        marks = ", ".join("?" * len(first))
        base.executemany(f"INSERT INTO metrics ({', '.join(first)}) VALUES ({marks})", map(row, steps))
    base.close()
