"""The evidence of a finding by rank: the stacks of a hang, folded, and the time of each rank in a slow span."""

from collections.abc import Iterator
from typing import Any

import pytest

from stepscope.diagnosis.finding import Finding
from stepscope.diagnosis.run_diagnosis import VERSION
from stepscope.hub.store.engine import Engine
from stepscope.hub.store.read.run_catalog import run_number
from stepscope.hub.store.write.finding_rows import Diagnosed, write_findings
from stepscope.model.names import EVENT_POSITION, EVENT_STARTED
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record, Span
from tests.hub.conftest import RunningHub
from tests.web.conftest import Opened, until
from tests.web.looks import SIZES, look_over
from tests.web.stored import hub_with

START = 1_790_000_000 * 10**9
SECOND = 10**9
RANKS, STEPS, ODD = 8, 12, 5
LAYERS, LANES = 40, 5
OUTER = [f"/code/launch.py:{line} call" for line in range(4)]
WAITING = [*OUTER, "/code/train.py:90 step", "/lib/torch/_tensor.py:581 backward", "/lib/torch/graph.py:825 run"]
READING = [*OUTER, "/code/train.py:90 step", "/code/shards.py:71 read", "/lib/socket.py:707 readinto"]


def _rank(rank: int) -> Batch:
    writer = Writer(
        id=f"w{rank}", run="hung", project="hang", name="hung", rank=rank, world_size=RANKS, wall_ns=START, host="a"
    )
    records: list[Record] = [Event(START, None, None, None, None, 9, EVENT_STARTED, {"config": {}})]
    for step in range(STEPS):
        time, place = START + step * SECOND, step.to_bytes(7, "big")
        records.append(Metric(time, step, None, "trainer", {"loss": 1.0}))
        took = SECOND // 10 * (4 if rank == ODD else 1)
        records.append(Span(time, took, step, None, bytes([1]) * 16, bytes([rank + 1]) + place, None, "data_load"))
    where = {"stack": "\n".join(READING if rank == ODD else WAITING), "seconds": 30.0 + rank}
    if rank != ODD:
        where["collective"] = {"name": "all_reduce", "numel": 10, "dtype": "float32"}
    records.append(Event(START + (STEPS + 32) * SECOND, STEPS, None, None, None, 9, EVENT_POSITION, where))
    return Batch(writer, 1, records)


def _findings(engine: Engine) -> None:
    hang = Finding(
        "hang", "FATAL", "hang at step 12: rank 5 never arrived", step=STEPS, ranks=(ODD,), span="all_reduce",
        value=35.0, time=START + STEPS * SECOND,
    )  # fmt: skip
    slow = Finding(
        "straggler", "WARN", "rank 5 takes 4 times as long in data_load", step=8, last=11, ranks=(ODD,),
        span="data_load", value=4.0, time=START + 11 * SECOND,
    )  # fmt: skip
    layers = [
        Finding("ratio", "WARN", f"layer{n}/ratio is 1", step=0, key=f"layer{n}/ratio", time=START)
        for n in range(LAYERS)
    ]
    run, many = run_number(engine, "hung"), run_number(engine, "layers")
    assert run is not None
    assert many is not None
    (commit,) = engine.query("SELECT max(commit) AS newest FROM ledger")["newest"]
    write_findings(engine, [Diagnosed(run, [hang, slow], VERSION, commit), Diagnosed(many, layers, VERSION, commit)], 2)


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with a run of eight ranks in which one reads while the others wait for it."""
    deep = Writer(id="l", run="layers", project="hang", name="layers", rank=0, world_size=1, wall_ns=START, host="a")
    points: list[Record] = [Metric(START + step * SECOND, step, None, None, {"loss": 1.0}) for step in range(STEPS)]
    batches = [*(_rank(rank) for rank in range(RANKS)), Batch(deep, 1, points)]
    with hub_with(tmp_path_factory.mktemp("hung") / "home", batches, _findings) as hub:
        yield hub


def test_stacks_are_folded(hung: RunningHub, show: Opened) -> None:
    """Ranks at the same place are one stack; the odd one out comes first, and the lines that differ stand out."""
    page = show(hung, "run/hung?tab=diagnosis")
    until(page, "document.querySelectorAll('.stack').length === 2")
    odd, usual = page.locator(".stack").all()
    assert odd.locator("h3").inner_text().split("\n")[0].startswith("rank 5")
    assert "odd one out" in odd.inner_text()
    assert odd.locator(".apart").all_inner_texts() == READING[-2:]
    assert usual.locator("h3").inner_text().startswith("ranks 0–4, 6, 7")
    assert "in all_reduce" in usual.inner_text()
    assert usual.locator("li").all_inner_texts() == WAITING[-6:]
    usual.get_by_role("button", name="1 outer line").click()
    until(page, "document.querySelectorAll('.stack')[1].querySelectorAll('li').length === 7")


def test_ranks_are_compared_in_the_span(hung: RunningHub, show: Opened) -> None:
    """The time of each rank in the span of a straggler is a bar, the longest first."""
    page = show(hung, "run/hung?tab=diagnosis")
    until(page, "document.querySelectorAll('.rank-bars li').length === 8")
    first = page.locator(".rank-bars li").first
    assert first.inner_text().split("\n") == ["rank 5", "400 ms"]
    assert page.locator(".rank-bars .blamed").count() == 1
    assert page.get_by_text("There are more spans").count() == 0


def test_the_slowest_spans_are_asked_for(hung: RunningHub, show: Opened) -> None:
    """Of more spans than one request reads the longest are compared, and that there are more is said."""
    page = show(hung, "run/hung?tab=diagnosis")
    asked = []

    def cut(route: Any) -> None:
        asked.append(route.request.url)
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "next": 1000})

    page.route("**/api/spans?**", cut)
    page.reload()
    page.get_by_text("There are more spans: these are the 1,000 longest.").wait_for()
    assert all("sort=slowest" in each for each in asked)


def test_many_findings_at_a_step_leave_room(hung: RunningHub, show: Opened) -> None:
    """Of flags at one step a few stand above each other; how many more there are is said, and the list has all."""
    page = show(hung, "run/layers?tab=diagnosis")
    until(page, f"document.querySelectorAll('.diagnosed').length === {LAYERS}")
    assert page.locator(".time-line-mark").count() == LANES
    page.get_by_text(f"{LAYERS - LANES} more at the same steps are in the list").wait_for()


@SIZES
def test_everyone_can_use_it(hung: RunningHub, show: Opened, width: int, theme: str) -> None:
    """Nothing is wider than the window, and axe finds nothing serious, on a phone and on a desk, in both themes."""
    page = show(hung, "run/hung?tab=diagnosis", width=width, theme=theme)
    until(page, "document.querySelectorAll('.stack').length === 2")
    look_over(page, hung, ["run/hung?tab=diagnosis"])
