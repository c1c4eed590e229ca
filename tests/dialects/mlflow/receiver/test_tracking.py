"""A hub that is killed while MLflow's client, which repeats what was not answered, logs to it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.mlflow.receiver.dying_hub import AFTER, BEFORE
from tests.dialects.wandb.receiver.conftest import sql, wait_state
from tests.hub.conftest import RunningHub
from tests.hub.test_connections import wait_for
from tests.late import late

mlflow: Any = late("mlflow")
PROGRAM = (str(Path(__file__).with_name("dying_hub.py")),)


class DyingHub:
    """A hub that dies in the middle of a request, and is started again while the client waits."""

    def __init__(self, folder: Path) -> None:
        self._order = folder / "order"
        env = {"STEPSCOPE_TEST_ORDER": str(self._order)}
        self.hub = RunningHub(folder / "home", program=PROGRAM, env=env).start()
        self.client = mlflow.MlflowClient(self.hub.url)

    def die_during(self, where: str, call: Any, *arguments: Any, **named: Any) -> None:
        """Make a call during which the hub dies; it succeeds because the client repeats it."""
        self._order.write_text(where)
        failed: list[BaseException] = []

        def make() -> None:
            try:
                call(*arguments, **named)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=make)
        thread.start()
        assert self.hub.process is not None
        assert self.hub.process.wait(60) == -9
        self.hub.start()
        thread.join()
        assert not failed


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DyingHub]:
    """A hub to be killed, and a client that does not wait long before it repeats a request."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "9")
    pytest.importorskip("tests.chdb")
    made = DyingHub(tmp_path)
    yield made
    made.hub.kill()


def test_a_kill_loses_and_repeats_nothing(dying: DyingHub) -> None:
    """Values, params and the end of a run are stored once, wherever between database, journal and answer it dies."""
    client, hub = dying.client, dying.hub
    run = client.create_run("0").info.run_id
    for step, where in enumerate((AFTER, AFTER, BEFORE)):
        metrics = [mlflow.entities.Metric(f"m{at}", at / 3, 1_700_000_000_000 + step, step) for at in range(20)]
        dying.die_during(where, client.log_batch, run, metrics, [mlflow.entities.Param(f"p{step}", str(step))])
    dying.die_during(BEFORE, client.set_terminated, run)
    wait_state(hub, run, "finished")
    wait_for(lambda: hub.request("GET", f"/api/runs/{run}").json()["config"])  # of another writer than the end
    assert hub.request("GET", f"/api/runs/{run}").json()["config"] == {"p0": 0, "p1": 1, "p2": 2}
    number = f"(SELECT max(run) FROM runs WHERE id = '{run}')"
    values = f"SELECT count() FROM metrics WHERE series IN (SELECT series FROM series WHERE run = {number})"
    assert sql(hub, values) == [[60]]
