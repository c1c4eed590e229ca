"""Every question of the API has the same answer on a cluster of the oldest ClickHouse and in the newest chDB."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tests.chdb", reason="the answers are compared with those of chDB")

from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.questions.openapi import ENDPOINTS
from stepscope.hub.questions.routes import mount
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import build_app
from stepscope.model.names import EVENT_ARTIFACT, EVENT_ARTIFACT_USED, EVENT_CHECKPOINT
from stepscope.model.ports import Batch, Writer
from stepscope.model.records import Event, Metric, Record
from stepscope.model.sample_columns import prompt_number
from stepscope.testing.clickhouse_cluster import ClusterProcesses
from tests.hub.in_process import request
from tests.hub.questions.test_arrival_order import large_values
from tests.hub.questions.test_distributions import TRACE, distributions
from tests.hub.questions.test_samples import sampled
from tests.hub.questions.world import FAILED, SPIKE, START, fill, trace_of

Ask = Callable[..., Any]
STEP_TRACE = trace_of(SPIKE, 0).hex()
TEN_SECONDS = {"since": START // 10**9 + 60, "until": START // 10**9 + 70}
QUESTIONS: dict[str, tuple[str, ...]] = {
    "/api/runs": (
        *("", "?sort=name", "?sort=-metrics.trainer/loss&metric=trainer/loss", "?limit=3", "?archived=true"),
        *(
            "?filter=status=failed",
            "?filter=config.lr<0.01 and name~s",
            "?filter=metrics.trainer/loss>1",
            "?filter=base",
        ),
        *("?filter=tags.team=red and not project=gpt", "?filter=created>2020-01-01"),
        *("?sort=-last7.loss&column=last3.trainer/loss", "?filter=last120.loss<1.5&sort=name"),
        *("?group=config.lr&metric=trainer/loss&column=last3.trainer/loss", "?group=status&sort=metrics.trainer/loss"),
        *("?sort=name&column=metrics.trainer/lr@best.trainer/loss&column=metrics.trainer/loss@max.trainer/loss",),
    ),
    "/api/runs/{run}": ("big", "again", "small-3", "spread", "none"),
    "/api/runs/{run}/keys": ("big", "again", "spread"),
    "/api/runs/{run}/series": (
        *("big?key=trainer/loss", "big?key=trainer/loss&by_rank=true", "big?key=trainer/loss&rank=1&points=10"),
        *("big?key=trainer/loss&key=trainer/lr&points=7", "big?key=trainer/loss&x=time&points=9&align=true"),
        *("big?key=system/gpu_util&x=relative", "big?key=trainer/loss&from=10&to=20", "big?key=no"),
        *("again?key=trainer/loss", "again?key=trainer/loss&attempts=all", "again?key=trainer/loss&attempts=1"),
        *("small-3?key=trainer/loss", "spread?key=split&by_attrs=true", "spread?key=wait"),
    ),
    "/api/runs/{run}/quantiles": (
        *("big?span=train.step", "big?key=trainer/loss&q=0&q=1&points=4", "big?key=trainer/loss&x=time&points=2"),
        *("spread?key=wait&points=5", "spread?key=weights", "big?key=no"),
    ),
    "/api/runs/{run}/histograms": (
        *("spread?key=weights&points=50", "spread?key=wait&points=10", "spread?key=served&points=10"),
        *("spread?key=weights&from=10&to=19", "spread?key=rest&x=time", "big?key=trainer/loss"),
    ),
    "/api/runs/{run}/exemplars": ("spread?key=wait", "spread?key=wait&limit=3", "big?key=trainer/loss"),
    "/api/runs/{run}/steps/{step}": (
        "big/70",
        "big/90",
        "big/100?window=5",
        "again/60?attempt=1",
        "again/60",
        "big/7777",
        "big/100?limit=1",
        "big/100?limit=1&offset=1",
        "again/60?limit=1&rank=0&attempt=1",
        "large/8",
    ),
    "/api/runs/{run}/findings": ("big", "again", "small-2", "none"),
    "/api/runs/{run}/goodput": ("big", "again", "small-3"),
    "/api/runs/{run}/summary": ("big", "again", "none"),
    "/api/runs/{run}/samples": (
        *(
            "big",
            "rollouts",
            "rollouts?table=eval&chars=10",
            "rollouts?step=35&sort=-reward&limit=2",
            "rollouts?q=ANSWER 3",
        ),
        *("rollouts?step=90&other_step=14", "rollouts?step=50&other_run=others", "rollouts?q=answer&before=20", "none"),
    ),
    "/api/samples": (f"?run=rollouts&run=others&prompt={prompt_number('question 1'):016x}", "?prompt=00"),
    "/api/runs/{run}/checkpoints": (
        "saved",
        "saved?best=trainer/loss&key=trainer/lr",
        "big",
        "again?best=trainer/loss",
        "big?key=trainer/lr",
        "none",
    ),
    "/api/runs/{run}/artifacts": ("saved", "big", "none"),
    "/api/runs/{run}/control": ("big", "again", "none"),
    "/api/runs/{run}/edits": ("big",),
    "/api/runs/{run}/files": ("big",),
    "/api/runs/{run}/files/content": ("big?name=no",),
    "/api/runs/{run}/files/text": ("big?name=no",),
    "/api/runs/{run}/files/table": ("big?name=no",),
    "/api/runs/{run}/media": ("big",),
    "/api/runs/{run}/export": (
        *("big?format=csv", "big?format=jsonl&what=spans", "big?format=jsonl&what=logs", "again?format=jsonl"),
        *("rollouts?format=csv&what=samples", "rollouts?format=jsonl&what=samples"),
        *("big?format=csv&key=trainer/loss&rank=1&run_column=true", "spread?format=jsonl&what=histograms"),
    ),
    "/api/sparks": ("?run=big&run=again&run=small-3&metric=trainer/loss&points=20",),
    "/api/rates": ("?run=big&run=again&run=none",),
    "/api/fields": ("", "?project=tiny", "?run=big&run=again"),
    "/api/projects": ("",),
    "/api/series": (
        *("?run=big&run=again&run=small-3&key=trainer/loss", "?run=big&run=again&key=loss&points=20&from=10&to=90"),
        *("?run=big&run=again&key=trainer/loss&x=relative&points=16", "?run=big&key=system/gpu_util&x=time"),
        *("?run=big&run=again&expression={trainer/loss} / {trainer/lr}", "?run=big&expression=loss -"),
        "?run=big&run=again&key=trainer/loss&along=trainer/lr&to=2",
    ),
    "/api/spans": (
        *(
            "?run=big&step=70",
            "?run=big&status=error",
            "?run=big&name=train.forward&limit=5&sort=-duration",
            "?run=none",
        ),
        *(f"?trace_id={STEP_TRACE}", "?run=big&min_ms=800", "?open=true", f"?run=big&step={FAILED}&rank=0"),
        *("?error=memory", "?run=big&limit=4&offset=4"),
    ),
    "/api/spans/facets": ("?run=big", ""),
    "/api/spans/lanes": (f"?trace_id={STEP_TRACE}", "?run=big&step=70", "?run=big&last=2"),
    "/api/spans/export": (f"?trace_id={STEP_TRACE}", "?run=big&step=70&format=chrome"),
    "/api/traces/{trace_id}": (STEP_TRACE, TRACE.hex()),
    "/api/logs": (
        *("?run=big&step=70", "?run=big&q=done&limit=5", "?run=big&severity=17", "?run=big&sort=time&limit=3&offset=3"),
        *(f"?trace_id={STEP_TRACE}", "?kind=event&run=again", "?run=big&rank=1&limit=3"),
    ),
    "/api/alerts": ("?run=big", "?run=big&severity=17", ""),
    "/api/alerts/states": ("", "?run=big&state=firing"),
    "/api/alerts/states/{id}": ("none",),
    "/api/alerts/silences": ("",),
    "/api/alerts/rules": ("",),
    "/api/dashboards": ("",),
    "/api/dashboards/{name}": ("none",),
    "/api/shares": ("", "?run=big"),
    "/api/views": ("?project=gpt",),
    "/api/sql/tables": ("",),
    "/api/pipeline": ("",),
}
"""For each path what follows its fixed part, or replaces its parameters."""
OWN = ("bytes", "created", "home", "next", "place")
"""Fields that each store has a value of its own for; `next` continues a list, hubs of a cluster skip places."""
SQL = (
    "SELECT attempt, count() AS n, sum(step) AS steps FROM metrics GROUP BY attempt ORDER BY attempt",
    "SELECT value, count() AS n FROM metrics WHERE isNaN(value) OR value = 50 GROUP BY value ORDER BY n",
    "SELECT name, step, count() AS n, max(prompt) AS prompt FROM samples GROUP BY name, step ORDER BY name, step",
    "SELECT name, max(duration) AS longest FROM spans GROUP BY name ORDER BY name",
)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Ask a hub whose store is in its home."""
    yield from _asking(tmp_path_factory.mktemp("embedded"), "")


@pytest.fixture(scope="module")
def clustered(cluster: ClusterProcesses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Ask a hub whose store is a cluster."""
    yield from _asking(tmp_path_factory.mktemp("clustered"), cluster.url("questions"))


def saved(run: str) -> Batch:
    """A run that saved three checkpoints between its values."""
    begin = START - 10**12  # no other run starts then: runs of one time are in the order of their numbers
    records: list[Record] = []
    for step in range(30):
        records.append(Metric(begin + step, step, None, "trainer", {"loss": 3.0 - step / 10, "lr": 0.1 / (step + 1)}))
        if step % 10 == 9:
            attrs = {"path": f"ck-{step}", "step": step}
            records.append(Event(begin + step, step, None, None, None, 9, EVENT_CHECKPOINT, attrs))
            made = {"id": f"a{step}", "name": "model", "kind": "model", "path": f"m-{step}"}
            records.append(Event(begin + step, step, None, None, None, 9, EVENT_ARTIFACT, made))
    used = {"name": "model:v1"}
    records.append(Event(begin + 30, 30, None, None, None, 9, EVENT_ARTIFACT_USED, used))
    return Batch(Writer(id="w", run=run, project="gpt", name=run, wall_ns=begin), 1, records)


def _asking(place: Path, store: str) -> Iterator[Ask]:
    home = HubHome(place)
    hub = Hub(HubOptions(home=place, store=store), home, open_home_store(home, store), Tokens(home.tokens))
    fill(hub.store.write)
    hub.store.write(Batch(Writer(id="w", run="spread", project="gpt", wall_ns=START), 1, distributions()))
    hub.store.write(large_values())
    hub.store.write(saved("saved"))
    hub.store.write(sampled("rollouts"))
    hub.store.write(sampled("others", better="better "))
    for run in ("big", "again", "small-2"):
        hub.diagnosing.catch_up(run)
    yield partial(request, build_app(hub, mount(hub, "test")))
    hub.close(0.1)


def test_every_question_is_among_them() -> None:
    """A new endpoint that reads belongs into the list."""
    assert set(QUESTIONS) == {endpoint.path for endpoint in ENDPOINTS if endpoint.method == "GET"}


@pytest.mark.parametrize("path", QUESTIONS)
def test_the_answers_are_the_same(path: str, embedded: Ask, clustered: Ask) -> None:
    """Status and body are equal, but for what says where the store is."""
    for rest in QUESTIONS[path]:
        start, _, end = path.partition("{run}" if "{run}" in path else "{")
        given, mark, params = rest.partition("?")
        if "{step}" in path:
            given, _, step = given.partition("/")
            end = end.replace("{step}", step)
        asked = start + given + ("" if "{run}" not in path else end) + mark + params
        here, there = embedded("GET", asked), clustered("GET", asked)
        assert there.status_code == here.status_code, asked
        assert _differences(_leaves(there), _leaves(here)) == {}, asked


@pytest.mark.parametrize("sql", SQL)
def test_sql_is_the_same(sql: str, embedded: Ask, clustered: Ask) -> None:
    """A SELECT of a user has the same rows in the same types."""
    here, there = (ask("POST", "/api/sql", json={"sql": sql}).json() for ask in (embedded, clustered))
    assert (there["columns"], there["rows"]) == (here["columns"], here["rows"])


def _leaves(response: Any) -> dict[str, Any]:
    """The values of a JSON body by their paths, or the lines of another one by their numbers."""
    found: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict | list) and value:
            for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                walk(f"{path}.{key}", each)
        else:
            found[path] = value

    is_json = response.headers["content-type"].partition(";")[0] == "application/json"
    walk("", response.json() if is_json else response.text.splitlines())
    return found


def _differences(there: dict[str, Any], here: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs, but for the place of the store and when it was filled."""
    pairs = {path: (there.get(path), here.get(path)) for path in there | here}
    return {path: pair for path, pair in pairs.items() if path.rpartition(".")[2] not in OWN and not _same(*pair)}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        # a spread is the root of a small difference, and rows are added up in another order
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other) and type(one) is type(other)
