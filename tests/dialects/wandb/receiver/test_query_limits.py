"""GraphQL queries that cost much: they are bounded, cancelled, and hold up no other client."""

import http.client
import json
import threading
import time
from typing import Any

import pytest

from stepscope.dialects.wandb.receiver.graphql import GraphQLError
from stepscope.dialects.wandb.receiver.query_limits import CLIENT_LEFT, MAX_LISTS, MAX_READS, MAX_SECONDS, QueryCost
from tests.dialects.wandb.receiver.test_service import UPSERT, ask, block, stream
from tests.hub.conftest import JSON, RunningHub
from tests.hub.test_connections import wait_for

NAME = "x" * 90
MANY = {"$or": [{"display_name": {"$regex": f"x*x*y{at}"}} for at in range(200)]}
RUNS = 'project(name: "p") { runs(filters: $filters) { edges { node { name } } } }'


@pytest.fixture(scope="module", autouse=True)
def runs(hub: RunningHub) -> None:
    """Thirty runs with long names."""
    upsert = UPSERT.replace("modelName", f'displayName: "{NAME}", modelName')
    for at in range(30):
        ask(hub, upsert, name=f"long-{at}", project="p")
        stream(hub, f"long-{at}", files=block(0, 0))


def aliases(count: int, what: str = RUNS) -> str:
    """A query that selects the same so many times."""
    return "query Q($filters: JSONString) {" + " ".join(f"a{at}: {what}" for at in range(count)) + "}"


def body(query: str, **variables: Any) -> bytes:
    """A GraphQL request."""
    return json.dumps({"query": query, "variables": variables}).encode()


def test_a_costly_query_ends_and_holds_up_no_client_that_logs(hub: RunningHub) -> None:
    """Queries of minutes are refused in words after seconds; a client that logs is answered meanwhile."""
    done: dict[str, float] = {}
    said: list[Any] = []

    def attack(at: int) -> None:
        said.append(hub.post("/graphql", body(aliases(12), filters=json.dumps(MANY)), JSON).json())
        done[f"attack {at}"] = time.monotonic()

    threads = [threading.Thread(target=attack, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    ask(hub, UPSERT, name="other", project="q")
    done["other"] = time.monotonic()
    for thread in threads:
        thread.join()
    assert min(done, key=lambda name: done[name]) == "other"
    assert [f"{MAX_SECONDS:g} s of processor time" in each["errors"][0]["message"] for each in said] == [True] * 2


def test_a_client_that_leaves_cancels_its_query(hub: RunningHub) -> None:
    """The query of a closed connection ends, and is counted."""
    connection = http.client.HTTPConnection("127.0.0.1", hub.port)
    connection.request("POST", "/graphql", body(aliases(12), filters=json.dumps(MANY)), {"content-type": JSON})
    connection.close()

    def is_counted() -> bool:
        return CLIENT_LEFT in json.dumps(hub.health()["receivers"]["wandb"])

    wait_for(is_counted)


def test_a_list_that_is_selected_often_is_read_once(hub: RunningHub) -> None:
    """Aliases of a list of runs are answered, all with the same runs, up to a number that no client needs."""
    found = ask(hub, aliases(MAX_LISTS))
    names = [edge["node"]["name"] for edge in found["a0"]["runs"]["edges"]]
    assert set(names) >= {f"long-{at}" for at in range(30)}
    assert len(found) == MAX_LISTS
    assert all(each == found["a0"] for each in found.values())


@pytest.mark.parametrize("what", ["", 'project(name: "p") { runCount }', "projects { edges { node { name } } }"])
def test_more_aliases_are_refused_in_words(hub: RunningHub, what: str) -> None:
    """Each list has its price: two hundred of them are not made."""
    said = hub.post("/graphql", body(aliases(200, what or RUNS)), JSON).json()
    assert f"more than {MAX_LISTS} lists" in said["errors"][0]["message"]


def test_reads_of_the_store_are_counted() -> None:
    """A query that reads the histories of too many runs is refused with the number."""
    cost = QueryCost(clock=lambda: 0.0)
    for _ in range(MAX_READS):
        cost.read()
    with pytest.raises(GraphQLError, match=f"more than {MAX_READS} runs"):
        cost.read()


def test_many_mutations_in_one_request_are_refused(hub: RunningHub) -> None:
    """A request with more mutations than a client sends changes nothing."""
    made = "".join(
        f'm{at}: upsertBucket(input: {{name: "many-{at}", modelName: "p"}}) {{ inserted }} ' for at in range(30)
    )
    answer = hub.post("/graphql", body(f"mutation M {{ {made} }}"), JSON).json()
    assert "mutations" in answer["errors"][0]["message"]
    found = ask(hub, 'query { project(name: "p") { run(name: "many-0") { name } } }')
    assert found["project"]["run"] is None
