"""`stepscope mcp` asked by the official client over real pipes."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.forked import stepscope
from tests.hub.conftest import RunningHub
from tests.late import late

pytest.importorskip("tests.chdb", reason="the hub's store needs chDB")
mcp, stdio = late("mcp"), late("mcp.client.stdio")

PROGRAM = """
import math, stepscope
for name, rate in (("one", 0.1), ("two", 0.2)):
    run = stepscope.init(project="p", name=name, run_id=name, config={"lr": rate, "same": 1})
    for i in range(60):
        with run.step(i):
            with run.span("forward"):
                run.log({"loss": 9.0 if i == 55 else 1.0 + (i % 5) / 10, name: 1.0}, category="trainer")
    run.alert("spike", "ERROR", "loss jumped", step=55)
    run.finish()
"""
TWICE = """
import stepscope
for attempt, first, last in ((1, 0, 30), (2, 20, 40)):
    run = stepscope.init(project="p", name="twice", run_id="twice")
    for i in range(first, last):
        run.log({"loss": float(attempt)}, step=i, category="trainer")
        run.alert("odd", "WARN", step=i)
    run.finish()
"""
Ask = Callable[..., Awaitable[Any]]


def conversation(home: Path, talk: Callable[[Any, Ask], Awaitable[None]], *options: str) -> None:
    """Start the server as an agent does, and talk to it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = ["-m", "stepscope", "mcp", "--home", str(home), *options]
    server = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=environment)

    async def run() -> None:
        async with mcp.Client(stdio.stdio_client(server)) as client:

            async def ask(tool: str, **given: Any) -> Any:
                answer = await client.call_tool(tool, given)
                assert not answer.is_error, answer.content
                return json.loads(answer.content[0].text)

            await talk(client, ask)

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests may keep a loop on this thread
        pool.submit(lambda: asyncio.run(asyncio.wait_for(run(), 500))).result()


async def everything(client: Any, ask: Ask) -> None:
    """Ask each question once."""
    tools = (await client.list_tools()).tools
    names = {tool.name for tool in tools}
    assert names == {
        "runs",
        "run",
        "findings",
        "series",
        "step",
        "spans",
        "trace",
        "logs",
        "alerts",
        "diff",
        "sql",
        "control",
        "checkpoints",
    }
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert {row["id"] for row in (await ask("runs", metrics=["loss"]))["runs"]} == {"one", "two"}
    assert (await ask("runs", filter="config.lr = 0.2"))["matched"] == 1
    assert (await ask("run", run="one"))["config"] == {"lr": 0.1, "same": 1}
    (found,) = (await ask("findings", run="one"))["findings"]
    assert (found["kind"], found["step"]) == ("spike", 55)
    (line,) = (await ask("series", run="one", keys=["trainer/loss"], points=10))["series"]
    assert max(line["columns"]["max"]) == 9.0
    assert (await ask("series", run="one", keys=["trainer/loss"], by_rank=True))["series"][0]["rank"] == 0
    assert (await ask("step", run="one", step=55))["metrics"][0]["values"][0]["value"] == 9.0
    (slowest,) = (await ask("spans", run="one", name="forward", limit=1, error=False))["spans"]
    assert len((await ask("trace", trace_id=slowest["trace_id"]))["spans"]) == 2
    assert (await ask("logs", run="one", limit=1))["logs"]
    assert (await ask("alerts", run="one"))["alerts"][0]["body"] == "loss jumped"
    diff = await ask("diff", run="one", other="two")
    assert diff["config"] == {"lr": [0.1, 0.2]}
    assert diff["only"] == [["trainer/one"], ["trainer/two"]]
    assert diff["metrics"]["trainer/loss"][0]["max"] == 9.0
    assert (await ask("sql", sql="SELECT count() AS n FROM runs"))["rows"] in ([["2"]], [[2]])
    for tool, given, word in (("sql", {"sql": "DROP TABLE runs"}, "SELECT"), ("findings", {"run": "nobody"}, "no run")):
        refused = await client.call_tool(tool, given)
        assert refused.is_error
        assert word in refused.content[0].text


def test_without_a_hub(home: Path, python: Any) -> None:
    """Each question starts the engine in the server's process, reads what is new, and lets go."""
    assert python(PROGRAM).returncode == 0
    conversation(home, everything)


async def of_one_attempt(client: Any, ask: Ask) -> None:
    """Ask for what was done twice."""
    for given, value in (({}, 2.0), ({"attempt": 2}, 2.0), ({"attempt": 1}, 1.0)):
        found = await ask("step", run="twice", step=25, **given)
        assert (found["attempt"], found["attempts"]) == (value, [1, 2])
        assert [each["value"] for each in found["metrics"][0]["values"]] == [value]
    (line,) = (await ask("series", run="twice", keys=["trainer/loss"], attempt=1, rank=0))["series"]
    assert (line["total"], set(line["columns"]["value"])) == (30, {1.0})
    assert [each["attempt"] for each in (await ask("alerts", run="twice", step=25, rank=0))["alerts"]] == [2, 1]
    assert (await ask("alerts", run="twice", rank=1))["alerts"] == []
    refused = await client.call_tool("step", {"run": "twice", "step": 35, "attempt": 1})
    assert "attempt 1 did not reach step 35" in refused.content[0].text


def test_an_attempt_can_be_named(home: Path, python: Any) -> None:
    """Of steps that a later attempt did again, those of an earlier one are shown on request."""
    assert python(TWICE).returncode == 0
    conversation(home, of_one_attempt)


def test_with_a_hub(home: Path, python: Any, until: Callable[..., None]) -> None:
    """The hub that has the home open is asked over HTTP."""
    assert python(PROGRAM).returncode == 0
    hub = RunningHub(home).start()
    try:
        until(lambda: '"step": 59' in stepscope("step", "two", "59", "--json", "--home", home).stdout)
        until(lambda: '"complete": true' in stepscope("findings", "one", "--json", "--home", home).stdout)
        conversation(home, everything)
    finally:
        assert hub.stop() == 0


TRAINING = """
import time, stepscope
run = stepscope.init(project="p", run_id="asked", probes=False)
live = run.live(lr_scale=1.0)
run.log({"loss": 1.0}, step=0)
while not run.stop_requested:
    time.sleep(0.01)
print(live.lr_scale)
run.finish()
"""


async def control(client: Any, ask: Ask) -> None:
    """Change a setting, then stop the run."""
    tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    assert {name for name, hints in tools.items() if not hints.read_only_hint} == {"stop", "set_live"}
    assert (await ask("set_live", run="asked", settings={"lr_scale": 0.5}))["changes"][0]["value"] == 0.5
    refused = await client.call_tool("set_live", {"run": "asked", "settings": {"other": 1}})
    assert "did not declare" in refused.content[0].text
    while (await ask("control", run="asked"))["changes"][0]["state"] != "applied":
        await asyncio.sleep(0.05)
    assert (await ask("stop", run="asked"))["stop"]["state"] == "requested"


def test_agents_control_a_run_where_they_may(home: Path, start: Any, until: Callable[..., None]) -> None:
    """With `--control` an agent changes a live setting and stops the run; the program does both by itself."""
    program = start(TRAINING)
    hub = RunningHub(home).start()
    try:
        until(lambda: "lr_scale" in stepscope("set", "asked", "--home", home).stdout)
        conversation(home, control, "--control")
        done = program.wait()
        assert (done.returncode, done.stdout.split()) == (0, ["0.5"]), done.stderr
    finally:
        assert hub.stop() == 0
