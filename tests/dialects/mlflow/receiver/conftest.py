"""MLflow's own server and a hub beside it: one of each for all tests that compare their answers."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.dialects.mlflow.receiver.both_servers import BothServers
from tests.dialects.mlflow.receiver.rest_calls import RestCalls
from tests.dialects.mlflow.server_peer import serving
from tests.hub.conftest import RunningHub
from tests.late import late
from tests.shared import shared


@pytest.fixture(scope="module")
def both_servers(tmp_path_factory: pytest.TempPathFactory) -> BothServers:
    """Both servers, with an experiment `both`."""
    late("mlflow")
    pytest.importorskip("tests.chdb")

    @contextmanager
    def opened() -> Iterator[BothServers]:
        hub = RunningHub(tmp_path_factory.mktemp("hub") / "home").start()
        try:
            with serving(tmp_path_factory.mktemp("mlflow")) as theirs:
                found = BothServers(RestCalls(theirs.port), RestCalls(hub.port))
                tags = [{"key": "owner", "value": "us"}]
                found.make("$experiment", "experiments/create", {"name": "both", "tags": tags}, "experiment_id")
                yield found
        finally:
            hub.kill()

    return shared("mlflow's server and a hub", opened).reconnect()
