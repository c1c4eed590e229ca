"""The real W&B client at a real hub, and what the hub stored."""

import json
import math
import subprocess
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.hub.conftest import JSON, RunningHub
from tests.hub.test_connections import wait_for
from tests.imports.clients import PYTHON

KEY = "0" * 40


class Addressed(Protocol):
    """A hub, or what stands before several."""

    @property
    def url(self) -> str:
        """Its address."""


def run_wandb(hub: Addressed, place: Path, source: str, *, python: Path = PYTHON, key: str = KEY) -> str:
    """Run a program with wandb against a hub; its output."""
    if not python.exists():
        pytest.skip(f"{python.parents[1].name} is not installed (make setup CI=true)")
    place.mkdir(parents=True, exist_ok=True)
    known = {"PATH": "/usr/bin:/bin", "HOME": str(place), "WANDB_BASE_URL": hub.url, "WANDB_API_KEY": key}
    done = subprocess.run(
        [python, "-c", source], cwd=place, env=known, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sql(hub: RunningHub, statement: str) -> list[list[Any]]:
    """Ask the hub."""
    answer = hub.request("POST", "/api/sql", json.dumps({"sql": statement}).encode(), {"content-type": JSON}).json()
    rows: list[list[Any]] = answer["rows"]
    return rows


def wait_state(hub: RunningHub, run: str, state: str) -> dict[str, Any]:
    """Wait until a run is in a state, and return it."""
    found: dict[str, Any] = {}

    def is_there() -> bool:
        answer = hub.request("GET", f"/api/runs/{run}")
        found.update(answer.json() if answer.status == 200 else {})
        return found.get("status") == state

    wait_for(is_there)
    return found


def points(hub: RunningHub, run: str) -> dict[tuple[str, str, int], float | str]:
    """The values of a run by key, axis and step; NaN by name, for it equals nothing."""
    found = sql(
        hub,
        "SELECT s.key, s.axis, m.step, m.value FROM metrics AS m INNER JOIN series AS s ON s.series = m.series "
        f"INNER JOIN runs AS r ON r.run = s.run WHERE r.id = '{run}' AND s.key NOT LIKE 'system/%' "
        "AND s.key NOT LIKE 'stepscope/%'",
    )
    return {(key, axis, int(step)): spelled(value) for key, axis, step, value in found}


def spelled(value: Any) -> Any:
    """A number, or the name of one that is not finite."""
    if value is None or isinstance(value, str):
        return str(float(value)) if value is not None else "nan"
    return value if math.isfinite(value) else str(float(value))
