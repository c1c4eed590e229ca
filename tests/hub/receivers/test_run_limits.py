"""Limits on the number of runs."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from stepscope.hub.home import HubHome
from stepscope.hub.home_store import open_home_store
from stepscope.hub.limits import Limits
from stepscope.hub.receivers.ingest import DAY_SECONDS, TOO_MANY_RUNS, RunLimits
from stepscope.hub.receivers.native import PATH
from stepscope.hub.security.tokens import Tokens
from stepscope.hub.service import Hub, HubOptions
from stepscope.hub.serving.app import build_app
from stepscope.model.ports import Writer
from stepscope.model.records import Metric
from stepscope.wire import frames
from tests.hub.in_process import request

NOW = 1_750_000_000
UPSERT = "mutation m($i: UpsertBucketInput!) { upsertBucket(input: $i) { inserted } }"


def test_new_runs_are_refused_beyond_the_limit_and_taken_again_later() -> None:
    """Runs that are known go on, each receiver has its own limit, and a day gives as many again."""
    now = [0.0]
    limits = RunLimits(Limits(runs=2), clock=lambda: now[0])
    assert [limits.admits("wandb", run) for run in "abcab"] == [True, True, False, True, True]
    assert [limits.admits("mlflow", run) for run in "acd"] == [True, True, True]
    now[0] = DAY_SECONDS / 2
    assert [limits.admits("wandb", run) for run in "de"] == [True, True]
    assert [limits.admits("wandb", run) for run in "fg"] == [False, False]
    now[0] = 10 * DAY_SECONDS
    assert [limits.admits("wandb", run) for run in "fgh"] == [True, True, False]


def test_a_store_with_too_many_runs_takes_those_that_it_has() -> None:
    """Only while it is full is it asked for a run, and it takes new ones once others were deleted."""
    stored, asked = ["a", "b"], []

    def look_up(run: str) -> str | None:
        asked.append(run)
        return "p" if run in stored else None

    limits = RunLimits(Limits(all_runs=2), lambda: len(stored), look_up)
    assert limits.admits("wandb", "a")
    assert asked == []
    limits.count()
    assert [limits.admits("wandb", run) for run in "abcb"] == [True, True, False, True]
    assert asked == ["b", "c"]
    stored.remove("b")
    limits.count()
    assert limits.admits("wandb", "c")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub that takes one new run of each receiver."""
    pytest.importorskip("tests.chdb")
    home = HubHome(tmp_path_factory.mktemp("hub") / "home")
    options = HubOptions(home=home.home, limits=Limits(runs=1))
    made = Hub(options, home, open_home_store(home), Tokens(home.tokens))
    yield made
    made.close(0.1)


def otlp(run: str) -> tuple[str, dict[str, Any]]:
    """One point over OTLP."""
    points = [{"timeUnixNano": str(NOW * 10**9), "asDouble": 1.0}]
    resource = {"attributes": [{"key": "train.run.id", "value": {"stringValue": run}}]}
    scopes = [{"metrics": [{"name": "m", "gauge": {"dataPoints": points}}]}]
    return "/v1/metrics", {"json": {"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]}}


def datadog(run: str) -> tuple[str, dict[str, Any]]:
    """One point over Datadog's HTTP API."""
    points = [{"timestamp": NOW, "value": 1.0}]
    return "/api/v2/series", {"json": {"series": [{"metric": "m", "points": points, "tags": [f"run_id:{run}"]}]}}


def mlflow(run: str) -> tuple[str, dict[str, Any]]:
    """A run of MLflow."""
    return "/api/2.0/mlflow/runs/create", {"json": {"experiment_id": "0", "run_name": run}}


def wandb(run: str) -> tuple[str, dict[str, Any]]:
    """A run of W&B."""
    given = {"modelName": "p", "name": run, "config": "{}"}
    return "/graphql", {"json": {"query": UPSERT, "variables": {"i": given}}}


def tinker(run: str) -> tuple[str, dict[str, Any]]:
    """An event of a Tinker session."""
    event = {
        "event": "SESSION_START", "event_id": f"{run}-1", "event_session_index": 0, "severity": "INFO",
        "timestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return "/api/v1/telemetry", {"json": {"session_id": run, "events": [event]}}


def native(run: str) -> tuple[str, dict[str, Any]]:
    """A batch of our own SDK."""
    head = frames.pack_head(Writer(id="w", run=run, project="p"))
    return PATH, {
        "content": head + frames.pack_batch(0, [msgspec.msgpack.encode(Metric(1, 1, None, None, {"a": 1.0}))])
    }


@pytest.mark.parametrize(
    ("name", "make", "status", "says"),
    [
        ("otlp_http", otlp, 200, True),
        ("datadog", datadog, 202, True),
        ("mlflow", mlflow, 400, True),
        ("wandb", wandb, 400, True),
        ("tinker", tinker, 200, False),
        ("native", native, 200, True),
    ],
)
def test_every_receiver_counts_and_reports_runs_beyond_the_limit(
    hub: Hub, name: str, make: Callable[[str], tuple[str, dict[str, Any]]], status: int, says: bool
) -> None:
    """The first run is taken, the next is refused in the client's dialect, and more of the first is taken."""
    app = build_app(hub)

    def send(run: str) -> Any:
        path, options = make(f"{name}-{run}")
        return request(app, "POST", path, **options)

    first, second = send("first"), send("second")
    assert TOO_MANY_RUNS not in first.text
    assert second.status_code == status
    assert (TOO_MANY_RUNS in second.text) is says
    assert hub.health()["receivers"][name]["rejected"] == {TOO_MANY_RUNS: 1}
    if name != "mlflow":  # which gives its runs ids
        assert TOO_MANY_RUNS not in send("first").text
        assert hub.health()["receivers"][name]["rejected"] == {TOO_MANY_RUNS: 1}


def test_a_refused_run_leaves_no_files(hub: Hub) -> None:
    """A refused run is neither in MLflow's database nor in W&B's folder."""
    app = build_app(hub)
    for path, options in (mlflow("no"), mlflow("no"), wandb("no-1"), wandb("no-2")):
        request(app, "POST", path, **options)
    found = request(app, "POST", "/api/2.0/mlflow/runs/search", json={"experiment_ids": ["0"]}).json()
    assert len(found["runs"]) == 1
    assert len(list((hub.files / "wandb" / "p" / "runs").iterdir())) == 1
