"""The W&B receiver of a real hub, with valid and invalid requests."""

import base64
import hashlib
import http.client
import json
import random
from typing import Any

import pytest

from tests.conftest import Compared
from tests.dialects.wandb.receiver.conftest import points, sql, wait_state
from tests.hub.conftest import JSON, Answer, RunningHub
from tests.hub.test_connections import wait_for
from tests.repeats import repeats

FUZZED = repeats(300, 10_000)
UPSERT = """mutation UpsertBucket($name: String, $project: String, $config: JSONString, $host: String) {
  upsertBucket(input: {name: $name, modelName: $project, config: $config, host: $host}) {
    bucket { id name historyLineCount project { name entity { name } } } inserted } }"""
RESUME = """query RunResumeStatus($project: String, $name: String!) { model(name: $project) { bucket(name: $name) {
  historyLineCount historyTail summaryMetrics wandbConfig(keys: ["t"]) } } }"""
REWIND = """mutation RewindRun($metric: String!) { rewindRun(input: {runName: "fork", projectName: "p",
  metricName: $metric, metricValue: 3}) { rewoundRun { id historyLineCount } } }"""
STATE = """query State($name: String!) { project(name: "p") { run(name: $name) { state } } }"""
HISTORY = "wandb-history.jsonl"


def ask(hub: RunningHub, query: str, **variables: Any) -> dict[str, Any]:
    """Send a GraphQL request; its data."""
    answer = hub.post("/graphql", json.dumps({"query": query, "variables": variables}).encode(), JSON)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    assert "errors" not in found, found
    data: dict[str, Any] = found["data"]
    return data


def stream(hub: RunningHub, run: str, process: str = "", **body: Any) -> Answer:
    """Send a file_stream request, of one of several processes if named."""
    headers = {"x-wandb-async-client-id": process} if process else {}
    return hub.post(f"/files/team/p/{run}/file_stream", json.dumps(body).encode(), JSON, **headers)


def block(offset: int, *steps: int, first: float = 1.7e9) -> dict[str, Any]:
    """Lines of history, one for each step."""
    lines = [json.dumps({"loss": float(step), "_step": step, "_timestamp": first + step}) for step in steps]
    return {HISTORY: {"offset": offset, "content": lines}}


def steps(hub: RunningHub, run: str, count: int) -> list[int]:
    """Wait for so many values of a run, and return their steps."""
    found: list[int] = []

    def is_there() -> bool:
        rows = sql(
            hub,
            "SELECT m.step FROM metrics AS m INNER JOIN series AS s ON s.series = m.series "
            f"INNER JOIN runs AS r ON r.run = s.run WHERE r.id = '{run}' AND s.key = 'loss' ORDER BY m.step",
        )
        found[:] = [int(row[0]) for row in rows]
        return len(found) >= count

    wait_for(is_there)
    return found


def test_blocks_that_overlap_are_stored_once_by_offset(hub: RunningHub) -> None:
    """A block that was sent before, is longer the second time, or begins before the end adds only what is new."""
    for files in (block(0, 0, 1), block(0, 0, 1), block(0, 0, 1, 2), block(1, 1, 2, 3), block(3, 3), block(4, 4)):
        assert stream(hub, "overlap", files=files).status == 200
    assert stream(hub, "overlap", complete=True, exitcode=0).status == 200
    wait_state(hub, "overlap", "finished")
    assert steps(hub, "overlap", 5) == [0, 1, 2, 3, 4]


def test_a_hub_that_was_killed_knows_the_lines_again(hub: RunningHub) -> None:
    """After SIGKILL a block that is sent again, with more behind it, is completed and not doubled.

    A run that ended before and is edited now has the state in which it ended, for W&B's API as on the page.
    """
    assert stream(hub, "killed", files=block(0, 0, 1, 2)).status == 200
    assert stream(hub, "ended", files=block(0, 0), complete=True, exitcode=3).status == 200
    wait_state(hub, "ended", "failed")
    hub.kill()
    hub.start()
    edit = 'mutation { upsertBucket(input: {name: "ended", modelName: "p", notes: "late"}) { inserted } }'
    ask(hub, edit)
    wait_for(lambda: hub.request("GET", "/api/runs/ended").json().get("notes") == "late")
    wait_state(hub, "ended", "failed")
    states = {run: ask(hub, STATE, name=run)["project"]["run"]["state"] for run in ("ended", "killed")}
    assert states == {"ended": "failed", "killed": "running"}
    assert stream(hub, "killed", files=block(0, 0, 1, 2, 3, 4)).status == 200
    assert stream(hub, "killed", files=block(5, 5)).status == 200
    assert steps(hub, "killed", 6) == [0, 1, 2, 3, 4, 5]


def test_another_process_with_the_same_id_is_another_attempt(hub: RunningHub) -> None:
    """Lines that restart with a different first line are not treated as retries; a different order of keys is."""
    assert stream(hub, "again", files=block(0, 0, 1), complete=True, exitcode=1).status == 200
    swapped = json.dumps({"_timestamp": 1.7e9, "_step": 0, "loss": 0.0})
    assert stream(hub, "again", files={HISTORY: {"offset": 0, "content": [swapped]}}).status == 200
    assert wait_state(hub, "again", "failed")["attempts"] == 1
    assert stream(hub, "again", files=block(0, 0, 1, 2, first=1.8e9), complete=True, exitcode=0).status == 200
    assert wait_state(hub, "again", "finished")["attempts"] == 2
    assert steps(hub, "again", 5) == [0, 0, 1, 1, 2]


def test_resuming_goes_on_at_the_line_count(hub: RunningHub) -> None:
    """A client that resumes gets the lines, the last step and the summary, and is the next attempt."""
    config = json.dumps({"lr": {"value": 1}, "_wandb": {"value": {"t": {"4": "3.11"}, "m": []}}})
    first = ask(hub, UPSERT, name="resumed", project="p", config=config)["upsertBucket"]
    assert (first["inserted"], first["bucket"]["historyLineCount"]) == (True, 0)
    assert ask(hub, RESUME, name="nobody", project="p")["model"]["bucket"] is None
    summary = {"wandb-summary.json": {"offset": 0, "content": ['{"loss": NaN}']}}
    assert stream(hub, "resumed", files={**block(0, 0, 1), **summary}, complete=True, exitcode=0).status == 200
    told = ask(hub, RESUME, name="resumed", project="p")["model"]["bucket"]
    assert (told["historyLineCount"], json.loads(told["wandbConfig"])) == (2, {"t": {"4": "3.11"}})
    assert json.loads(json.loads(told["historyTail"])[0])["_step"] == 1
    assert "NaN" in told["summaryMetrics"]
    ask(hub, UPSERT, name="resumed", project="p", config=config)  # from the process that still runs: no new attempt
    again = ask(hub, UPSERT, name="resumed", project="p", config=config, host="h")["upsertBucket"]
    assert (again["inserted"], again["bucket"]["historyLineCount"]) == (False, 2)
    assert stream(hub, "resumed", files=block(2, 2)).status == 200
    assert steps(hub, "resumed", 3) == [0, 1, 2]
    assert wait_state(hub, "resumed", "running")["attempts"] == 2


def test_a_console_line_that_changes_is_logged_again(hub: RunningHub) -> None:
    """A progress bar is sent as the same line with another text; what is sent again unchanged is not logged twice."""
    for lines in (["a", "1 %"], ["a", "1 %"], ["a", "50 %"], ["a", "50 %", "end"]):
        assert stream(hub, "console", files={"output.log": {"offset": 0, "content": lines}}).status == 200
    logs = "SELECT body FROM logs WHERE scope = 'console' AND run IN (SELECT run FROM runs WHERE id = 'console')"
    wait_for(lambda: len(sql(hub, logs)) >= 4)
    assert sorted(row[0] for row in sql(hub, logs)) == ["1 %", "50 %", "a", "end"]


@pytest.mark.parametrize("name", ["../run.json", "a/../../b", "%2e%2e/x", "/etc/passwd", "a//b", "..", "a/" * 40 + "b"])
def test_no_file_is_written_or_read_outside(hub: RunningHub, name: str) -> None:
    """Names that lead out of a run's folder are refused, in uploads and in downloads."""
    path = f"/files/team/p/out/{name}"
    assert hub.request("PUT", path, b"data").status in (400, 404)
    assert hub.request("GET", path).status in (400, 404)
    kept = [path.name for path in (hub.home / "hub" / "files").rglob("*") if path.is_file()]
    assert not set(kept) & {"passwd", "b", "x"}


def test_the_address_that_a_client_prints_leads_to_the_run(hub: RunningHub) -> None:
    """`View run at` opens the run on the page."""
    answer = hub.request("GET", "/stepscope/p/runs/some%20run")
    assert (answer.status, answer.headers["location"]) == (302, "/#/run/some%20run")


def test_the_address_of_a_project_leads_to_its_runs(hub: RunningHub) -> None:
    """`View project at` opens the runs of the project on the page."""
    answer = hub.request("GET", "/stepscope/my%20project")
    assert (answer.status, answer.headers["location"]) == (302, "/#/runs?filter=project%20%3D%20%22my%20project%22")


def test_processes_that_share_a_run_count_their_own_lines(hub: RunningHub) -> None:
    """In the mode `shared`, lines of one process at the offsets of another are neither dropped nor a new attempt."""
    output = {"output.log": {"offset": 0, "content": ["2026-01-02T03:04:05 hello"]}}
    summaries = [{"wandb-summary.json": {"offset": 0, "content": [json.dumps({key: 1})]}} for key in ("a", "b")]
    for _ in range(2):  # the second time is a repeat
        stream(hub, "shared", "one", files={**block(0, 0, 1), **output, **summaries[0]})
        stream(hub, "shared", "two", files={**block(0, 10, 11, 12), **output, **summaries[1]})
        stream(hub, "shared", "one", files=block(2, 2, 3))
    stream(hub, "shared", "two", files=block(3, 13), complete=True, exitcode=0)
    assert steps(hub, "shared", 8) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert wait_state(hub, "shared", "finished")["attempts"] == 1
    assert sql(hub, "SELECT count() FROM logs WHERE body = 'hello' AND step IN (1, 12)") == [[2]]
    query = '{ project(name: "p") { run(name: "shared") { summaryMetrics } } }'
    assert json.loads(ask(hub, query)["project"]["run"]["summaryMetrics"]) == {"a": 1, "b": 1}
    assert stream(hub, "shared", "x" * 200, files={}).status == 400


def test_rows_without_numbers_are_read_back(hub: RunningHub) -> None:
    """Lines that hold only a histogram or only media are rows of the history, also behind the last number.

    A nested value is found by the key with dots, which W&B gives it, and by the one that the hub gives it.
    """
    histogram = {"_type": "histogram", "bins": [0, 1], "values": [3]}
    rows = [
        {"loss": 1.0, "nest": {"a": 2}, "_step": 0},
        {"h": histogram, "_step": 1},
        {"image": {"_type": "image-file"}, "_step": 2},
    ]
    lines = [json.dumps({**row, "_timestamp": 1.7e9}) for row in rows]
    stream(hub, "media", files={HISTORY: {"offset": 0, "content": lines}})
    query = '{ project(name: "p") { run(name: "media") { historyLineCount history(minStep: 0, maxStep: 9) } } }'
    found = ask(hub, query)["project"]["run"]
    assert found["historyLineCount"] == 3
    assert [json.loads(row)["_step"] for row in found["history"]] == [0, 1, 2]
    spec = json.dumps({"keys": ["_step", "nest.a", "nest/a"]})
    query = (
        'query Q($specs: [JSONString!]!) { project(name: "p") { run(name: "media") { sampledHistory(specs: $specs) }}}'
    )
    sampled = ask(hub, query, specs=[spec])["project"]["run"]["sampledHistory"]
    assert sampled == [[{"_step": 0, "nest.a": 2, "nest/a": 2}]]


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        ("mutation { upsertSweep(input: {}) { sweep { name } } }", {}),
        (UPSERT, {"name": "fork", "project": "p", "config": '{"_wandb": {"value": {"branch_point": {"step": 3}}}}'}),
        (
            UPSERT,
            {"name": "fork", "project": "p", "config": '{"_wandb": {"value": {"branch_point": {"run_id": "no"}}}}'},
        ),
        (REWIND, {"metric": "_step"}),
        (REWIND, {"metric": "loss"}),
    ],
)
def test_what_the_hub_cannot_do_is_refused_in_words(hub: RunningHub, query: str, variables: dict[str, str]) -> None:
    """Sweeps, and forks of runs that are not there, get an error that the client prints, and create no run."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    answer = hub.post("/graphql", body, JSON).json()
    assert answer["errors"][0]["message"].startswith("this Stepscope hub")
    assert hub.request("GET", "/api/runs/fork").status == 404


def test_a_query_of_another_api_is_refused_in_words(hub: RunningHub) -> None:
    """MLflow's page asks at the same address: the answer names what was asked, and whose queries are answered."""
    query = """query q { mlflowGetExperiment(input: {experimentId: "0"}) { experiment { name } } }"""
    answer = hub.post("/graphql", json.dumps({"query": query, "operationName": "q"}).encode(), JSON).json()
    said = answer["errors"][0]["message"]
    assert said == "this Stepscope hub does not support 'mlflowGetExperiment': its GraphQL is W&B's"


def test_uploads_come_back_with_their_bytes(hub: RunningHub) -> None:
    """A file is listed with its size and read back, by its address and by a signed link, which no other opens."""
    data = random.Random(2).randbytes(300_000)
    assert stream(hub, "files", files=block(0, 0)).status == 200
    assert hub.request("PUT", "/files/team/p/files/media/a%20b.bin", data).status == 200
    listing = """query { project(name: "p") { run(name: "files") { fileCount files(first: 5) {
      edges { node { name sizeBytes url directUrl } } } } } }"""
    run = ask(hub, listing)["project"]["run"]
    (edge,) = run["files"]["edges"]
    assert (run["fileCount"], edge["node"]["name"], edge["node"]["sizeBytes"]) == (1, "media/a b.bin", 300_000)
    link = edge["node"]["directUrl"].removeprefix(hub.url)
    for path in (edge["node"]["url"].removeprefix(hub.url), link):
        answer = hub.request("GET", path)
        assert (answer.status, answer.body == data) == (200, True)
        assert answer.headers["content-disposition"] == "attachment"
    ticket = link.split("/")[3]
    assert hub.request("GET", link.replace(ticket, "x" + ticket)).status == 403


def test_an_artifact_file_must_have_its_digest(hub: RunningHub) -> None:
    """A file whose MD5 is another one is refused and not kept."""
    digest = hashlib.md5(b"right").hexdigest()
    assert hub.request("PUT", f"/wandb/objects/p/{digest}", b"wrong").status == 400
    assert hub.request("PUT", f"/wandb/objects/p/{digest}", b"right").status == 200
    assert hub.request("PUT", f"/wandb/objects/p/{digest}", b"wrong").status == 400
    (kept,) = (hub.home / "hub" / "files").rglob(digest)
    assert kept.read_bytes() == b"right"
    assert hub.request("PUT", "/wandb/objects/p/nothing", b"x").status == 400


def test_filters_and_order_of_runs(hub: RunningHub) -> None:
    """Runs are found by state, configuration and summary as MongoDB's operators say, in the order asked for."""
    for name, lr in (("f1", 1), ("f2", 2), ("f3", 3)):
        ask(hub, UPSERT, name=name, project="filtered", config=json.dumps({"lr": {"value": lr}}))
    query = """query Runs($filters: JSONString, $order: String) { project(name: "filtered") {
      runCount(filters: $filters)
      runs(filters: $filters, order: $order, first: 2) { edges { node { name } } pageInfo { hasNextPage } } } }"""
    wanted = {"$and": [{"config.lr.value": {"$gte": 2}}, {"state": "running"}, {"display_name": {"$regex": "^f"}}]}
    found = ask(hub, query, filters=json.dumps(wanted), order="-config.lr.value")["project"]
    assert found["runCount"] == 2
    assert [edge["node"]["name"] for edge in found["runs"]["edges"]] == ["f3", "f2"]
    assert ask(hub, query, filters="{}", order="")["project"]["runs"]["pageInfo"]["hasNextPage"] is True
    oldest = ask(hub, query, filters='{"display_name": {"$regex": "^f[13]$"}}', order="+created_at")["project"]
    assert [edge["node"]["name"] for edge in oldest["runs"]["edges"]] == ["f1", "f3"]


def test_half_a_surrogate_pair_poisons_no_run(hub: RunningHub) -> None:
    """A text that UTF-8 cannot encode becomes one that it can, wherever it is, and the run takes lines after it."""
    half = "\\ud800"
    described = f'name: "half", modelName: "p", notes: "{half}", tags: ["{half}"], displayName: $text, config: $config'
    upsert = f"mutation M($text: String, $config: String) {{ upsertBucket(input: {{{described}}}) {{ inserted }} }}"
    ask(hub, upsert, text="\ud800", config=json.dumps({"a": {"value": "\ud800"}}))
    files = 'createRunFiles(input: {runName: "half", projectName: "p", entityName: $text, files: [$text]}) { runID }'
    ask(hub, f"mutation M($text: String) {{ {files} }}", text="\ud800")
    made = 'projectName: "p", artifactTypeName: "t", artifactCollectionName: $text, digest: "d", runName: $text'
    ask(
        hub, f"mutation M($text: String) {{ createArtifact(input: {{{made}}}) {{ artifact {{ id }} }} }}", text="\ud800"
    )
    assert stream(hub, "half", files=block(0, 0, 1)).status == 200
    assert steps(hub, "half", 2) == [0, 1]
    wait_for(lambda: hub.request("GET", "/api/runs/half").json()["config"] == {"a": "?"})


def test_fuzzed_requests_get_no_failure(hub: RunningHub, compared: Compared) -> None:
    """Whatever is changed in requests of clients, the answer is no 5xx, and the next good request is taken."""
    chance = random.Random(1)
    seeds: list[tuple[str, str, bytes]] = [
        ("POST", "/graphql", json.dumps({"query": UPSERT, "variables": {"name": "z", "project": "fuzz"}}).encode()),
        ("POST", "/graphql", json.dumps({"query": RESUME, "variables": {"name": "z", "project": "fuzz"}}).encode()),
        ("POST", "/graphql", b'{"query": "{ project(name: \\"fuzz\\") { runs(filters: \\"{}\\", first: 2) { edges { '
         b'node { name historyKeys history(samples: 3) files { edges { node { name } } } } } } } }"}'),
        ("POST", "/graphql", b'{"query": "mutation { createArtifact(input: {projectName: \\"fuzz\\", artifactTypeName: '
         b'\\"t\\", artifactCollectionName: \\"c\\", digest: \\"d\\"}) { artifact { id state } } }"}'),
        ("POST", "/files/e/fuzz/z/file_stream", json.dumps({"files": block(0, 0, 1), "complete": False}).encode()),
        ("PUT", "/files/e/fuzz/z/a.txt", b"data"),
        ("GET", "/files/e/fuzz/z/a.txt", b""),
    ]  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=300)
    compared(FUZZED)
    for _ in range(FUZZED):
        method, path, body = chance.choice(seeds)
        data = bytearray(body)
        for _ in range(chance.randrange(6)):
            at = chance.randrange(len(data) + 1)
            piece = chance.choice([b"", b'"', b"{", b"}", b"[", b"\\", b"0", b"-1", b"null", b"\xff", b"1e999", b"..."])
            data[at : at + chance.randrange(4)] = piece
        connection.request(method, path, bytes(data))
        answer = connection.getresponse()
        answer.read()
        assert answer.status < 500, (method, path, bytes(data))
    connection.close()
    assert stream(hub, "sound", files=block(0, 0, 1, 2)).status == 200
    assert len(points(hub, "sound") if steps(hub, "sound", 3) else {}) == 3


LISTS = (
    'mutation M($x: JSON) { createArtifact(input: {projectName: "p", runName: "lists", artifactTypeName: "t", '
    'artifactCollectionName: "c", digest: "d", aliases: $x}) { artifact { id } } }',
    "mutation M($x: JSON) { createArtifactFiles(input: {artifactFiles: $x}) { files { edges { node { name } } } } }",
    'mutation M($x: JSON) { createRunFiles(input: {runName: "lists", projectName: "p", files: $x}) { runID } }',
    'query Q($x: JSON) { project(name: "p") { run(name: "lists") { sampledHistory(specs: $x) '
    "files(names: $x, fileNames: $x) { edges { node { name } } } parquetHistory(liveKeys: $x) { liveData } "
    "outputArtifacts { edges { node { files(names: $x) { edges { node { name } } } } } } } } }",
)


@pytest.mark.parametrize("given", [None, 1e-320, -1, True, "word", [], [1], [[]], [{}], {}, {"a": 1}, [None]], ids=str)
def test_any_value_may_stand_for_a_list(hub: RunningHub, given: Any) -> None:
    """Where clients send a list another value is a list of one, as in GraphQL: it never makes the hub fail."""
    assert stream(hub, "lists", files=block(0, 0, 1)).status == 200
    for query in LISTS:
        answer = hub.post("/graphql", json.dumps({"query": query, "variables": {"x": given}}).encode(), JSON)
        assert answer.status < 500, (query, answer.body)


INPUTS = {
    "upsertBucket": (
        *("id", "name", "modelName", "entityName", "displayName", "notes", "config", "tags", "groupName", "jobType"),
        *("host", "commit", "program", "summaryMetrics", "state", "sweep", "repo", "debug"),
    ),
    "notifyScriptableRunAlert": ("entityName", "projectName", "runName", "title", "text", "severity", "waitDuration"),
    "createRunFiles": ("entityName", "projectName", "runName", "files"),
    "createArtifact": (
        *("projectName", "runName", "artifactTypeName", "artifactCollectionName", "artifactCollectionNames"),
        *("digest", "description", "metadata", "aliases", "clientID", "historyStep"),
    ),
    "createArtifactManifest": ("artifactID",),
    "updateArtifactManifest": ("artifactManifestID",),
    "createArtifactFiles": ("artifactFiles",),
    "commitArtifact": ("artifactID",),
    "useArtifact": ("artifactID", "runName"),
    "linkArtifact": ("artifactID", "clientID", "artifactPortfolioName", "projectName", "entityName", "aliases"),
    "rewindRun": ("runName", "projectName", "entityName", "metricName", "metricValue"),
    "updateArtifact": ("artifactID", "description", "metadata", "aliases"),
    "addAliases": ("artifactID", "aliases"),
    "deleteAliases": ("artifactID", "aliases"),
    "deleteArtifact": ("artifactID",),
    "deleteRun": ("id", "deleteArtifacts"),
}
SOUND = {"name": "typed", "modelName": "p", "projectName": "p", "runName": "typed", "artifactTypeName": "t"}
ODD: tuple[Any, ...] = (
    *(
        None,
        [],
        [[]],
        ["x"],
        [None],
        [{}],
        {},
        {"a": []},
        {"alias": []},
        [{"alias": []}],
        True,
        0,
        -1,
        1.5,
        1e300,
        2**64,
    ),
    *("", "x", "\ud800", "\0", "{", "[]", '{"a": []}', "9" * 5000, "x" * 100_000),
)


@pytest.mark.parametrize("mutation", INPUTS)
def test_no_value_of_an_input_fails(hub: RunningHub, mutation: str, compared: Compared) -> None:
    """A list, an object, null, a number or a huge text in the place of any input is taken or refused for good."""
    id = ask(
        hub,
        'mutation { createArtifact(input: {projectName: "p", artifactTypeName: "t", artifactCollectionName: "c", '
        'digest: "typed"}) { artifact { id } } }',
    )["createArtifact"]["artifact"]["id"]
    sound = {**SOUND, "artifactCollectionName": "c", "digest": "typed", "artifactID": id}
    text = f"mutation M($x: JSON) {{ {mutation}(input: $x) {{ __typename }} }}"
    bodies = [{**sound, field: odd} for field in INPUTS[mutation] for odd in ODD]
    compared(len(ODD) + len(bodies))
    for given in [*ODD, *bodies]:
        answer = hub.post("/graphql", json.dumps({"query": text, "variables": {"x": given}}).encode(), JSON)
        assert answer.status < 500, (mutation, str(given)[:300], answer.body)


def test_no_value_of_a_stream_fails(hub: RunningHub, compared: Compared) -> None:
    """So it is with the fields of a file stream, and with the values of its lines."""
    for odd in ODD:
        named = [{"files": odd}, {"files": {HISTORY: odd}}, {"files": {HISTORY: {"offset": odd, "content": ["{}"]}}}]
        named += [{"files": {HISTORY: {"offset": 0, "content": odd}}}, {"complete": odd}, {"exitcode": odd}]
        for key in ("_step", "_timestamp", "_runtime", "_wandb", "loss"):
            line = json.dumps({"_step": 1, "_timestamp": 1.7e9, "loss": 1.0, key: odd})
            files = ("wandb-history.jsonl", "wandb-events.jsonl", "wandb-summary.json", "output.log")
            named += [{"files": {name: {"offset": 0, "content": [line]}}} for name in files]
        compared(len(named))
        for body in named:
            answer = stream(hub, f"odd-{ODD.index(odd)}", **body)
            assert answer.status < 500, (str(body)[:300], answer.body)


def test_a_token_is_the_key(hub: RunningHub) -> None:
    """The password of the request is the token; the dash that clients before 0.19 ask for is left out."""
    from stepscope.hub.security.tokens import Tokens

    text = Tokens(hub.home / "hub" / "tokens.json").create(("ingest",))[1]
    wait_for(lambda: hub.request("GET", "/api/runs").status == 401)
    body = json.dumps({"query": '{ viewer { entity } project(name: "p") { name } }'}).encode()
    for key, status in ((text, 200), (f"{text[:-40]}-{text[-40:]}", 200), ("0" * 40, 401)):
        header = base64.b64encode(f"api:{key}".encode()).decode()
        answer = hub.post("/graphql", body, JSON, authorization=f"Basic {header}")
        assert answer.status == status
        if status == 200:  # without the scope `read` there are no projects
            assert answer.json()["data"] == {"viewer": {"entity": "stepscope"}, "project": None}
