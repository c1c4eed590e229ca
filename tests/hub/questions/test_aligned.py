"""Lines of several ranks over time."""

from itertools import pairwise
from typing import Any

import pytest

from stepscope.hub.service import Hub
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Metric, Record
from tests.hub.questions.conftest import Get
from tests.hub.questions.world import MS, SECOND, START


def test_over_time_ranks_are_aligned_by_their_steps(hub: Hub, get: Get) -> None:
    """Ranks that log a step at slightly different times make one mark of it, also without steps."""
    ranks = 4
    for rank in range(ranks):
        late = rank * 20 * MS
        points: list[Record] = [
            Metric(START + n * SECOND // 10 + late, n, None, None, {"loss": 10.0 * rank + 1 / (n + 1)})
            for n in range(400)
        ]
        points += [
            Metric(START + n * SECOND + 5 * late, None, None, "system", {"load": 10.0 * rank}) for n in range(40)
        ]
        writer = Writer(id=f"aligned{rank}", run="aligned", project="p", rank=rank, world_size=ranks, wall_ns=START)
        hub.store.write(Batch(writer, 1, points))

    def asked(key: str, **more: object) -> dict[str, Any]:
        (line,) = get("/api/runs/aligned/series", key=key, align="true", **more)["series"]
        return dict(line)

    line = asked("loss", x="time", points=1000)
    assert (line["aligned"], line["total"], line["shown"]) == (True, 1600, 400)
    assert line["columns"]["mean"] == pytest.approx([15 + 1 / (n + 1) for n in range(400)])
    assert (line["columns"]["min"][7], line["columns"]["max"][7], line["columns"]["count"][7]) == (0.125, 30.125, 4)
    assert line["columns"]["last"][-1] == pytest.approx(15 + 1 / 400)
    few = asked("loss", x="relative", points=50)["columns"]["mean"]
    assert max(abs(after - before) for before, after in pairwise(few[1:])) < 0.2
    load = asked("system/load", x="relative", points=1000)["columns"]["mean"]
    assert len(load) >= 18
    assert load == pytest.approx([15.0] * len(load))
    assert not asked("loss", x="step", points=1000)["aligned"]
    assert not asked("loss", x="time", points=1000, rank=2)["aligned"]
