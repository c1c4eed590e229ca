"""Datadog's HTTP intake at a real hub: the official client unmodified, every compression, every refusal."""

import contextlib
import gzip
import json
import math
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import datadog
import pytest
import zstandard
from datadog.api.exceptions import ApiError

from stepscope.dialects.datadog.receiver.http_intake import LOGS
from stepscope.dialects.datadog.wire import requests
from stepscope.dialects.datadog.wire.dogstatsd_lines import MAX_TAGS, TOO_MANY_TAGS
from stepscope.testing.receivers import ReceiverContract, Reply, Sender
from tests.dialects.datadog.conftest import DatadogHub
from tests.hub.conftest import JSON, RunningHub
from tests.hub.receivers.test_contract import GARBAGE, AtHub
from tests.hub.test_connections import wait_for

MEGA = 1024 * 1024
NOW = int(time.time())


class IntakeSender(AtHub):
    """The second version of series."""

    def request(self, run: str, steps: Sequence[int]) -> bytes:
        """Values with their steps as tags."""
        points = [{"timestamp": NOW, "value": 0.5}]
        tags = [[f"run_id:{self.name(run)}", f"step:{step}"] for step in steps]
        series = [{"metric": "loss", "points": points, "tags": each} for each in tags]
        return json.dumps({"series": series}).encode()

    def send(self, request: bytes, token: str = "") -> Reply:
        """Post it; a refusal lists errors, and denies as Datadog does."""
        answer = self.hub.post("/api/v2/series", request, JSON, dd_api_key=token or "k" * 32)
        errors = answer.json()["errors"]
        after = answer.headers.get("retry-after")
        status: Any = {202: "ok", 400: "bad", 413: "too_large", 503: "busy"}.get(answer.status, "failed")
        if answer.status == 403:
            status = "forbidden" if "lacks the scope" in errors[0] else "unauthenticated"
        assert status == "ok" or errors
        return Reply(status, None if after is None else float(after))

    def garbage(self) -> Iterable[Any]:
        """Bytes, and JSON of other shapes."""
        shapes = (b"{}", b'{"series": 1}', b'{"series": [1]}', b'{"series": [{"metric": "", "points": []}]}', b"null")
        return (*GARBAGE, *shapes, b'{"series": [{"metric": "a", "points": [[1]]}]}', b"[" * 100_000)


class TestContract(ReceiverContract):
    """The contract of all receivers."""

    @pytest.fixture
    def sender(self, datadog_hub: DatadogHub) -> Sender:
        """A client of the hub that needs no token."""
        made: Sender = IntakeSender(datadog_hub)
        return made

    @pytest.fixture
    def guarded(self, start_guarded: RunningHub) -> Sender:
        """A client of the hub that has tokens."""
        made: Sender = IntakeSender(start_guarded)
        return made


@pytest.fixture(scope="module")
def start_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that gets tokens."""
    pytest.importorskip("tests.chdb")
    hub = RunningHub(tmp_path_factory.mktemp("guarded") / "home").start()
    yield hub
    with contextlib.suppress(Exception):
        hub.kill()


@pytest.fixture
def client(datadog_hub: DatadogHub) -> Any:
    """The official client, which raises on error responses."""
    datadog.initialize(api_key="k" * 32, api_host=datadog_hub.url, host_name="box", mute=False)
    return datadog.api


def test_the_official_client(datadog_hub: DatadogHub, client: Any) -> None:
    """Series of every type, distributions, an event and a check are an ordinary run; a gauge gives the step."""
    tags = ["run_id:http", "project:dd", "split:train"]
    series = [
        {"metric": "train.step", "points": [(NOW - 9, 1), (NOW - 5, 2)], "tags": tags[:2]},
        {"metric": "loss", "points": [(NOW - 9, 0.5), (NOW - 5, math.nan), (NOW - 4, 0.25)], "tags": tags},
        {"metric": "tokens", "points": [(NOW - 5, 512)], "tags": tags, "type": "count"},
        {"metric": "rate", "points": [(NOW - 5, 3.5)], "tags": tags, "type": "rate", "interval": 10},
    ]
    assert client.Metric.send(series) == {"status": "ok"}
    assert client.Metric.send(metric="early", points=(NOW - 20, 1), tags=tags, compress_payload=True) == {
        "status": "ok"
    }
    assert client.Distribution.send(metric="lat", points=[(NOW - 5, [1, 2])], tags=tags) == {"status": "ok"}
    made = client.Event.create(title="T", text="x\ny", tags=tags, alert_type="error", date_happened=NOW - 5)
    assert (made["status"], made["event"]["title"], int(made["event"]["id_str"]) > 0) == ("ok", "T", True)
    check = client.ServiceCheck.check(check="up", host_name="box", status=1, timestamp=NOW - 5, message="m", tags=tags)
    assert check == {"status": "ok"}
    assert datadog_hub.wait_rows("http", 10) == [
        ["early", None, 1],
        ["lat", 2, 1],
        ["lat", 2, 2],
        ["loss", 1, 0.5],
        ["loss", 2, "NaN"],
        ["loss", 2, 0.25],
        ["rate", 2, 3.5],
        ["tokens", 2, 512],
        ["train.step", 1, 1],
        ["train.step", 2, 2],
    ]
    tables = "logs AS l INNER JOIN runs AS r ON r.run = l.run WHERE r.id = 'http' ORDER BY l.name"
    wait_for(lambda: len(datadog_hub.sql(f"SELECT l.name FROM {tables}")) == 2)
    assert datadog_hub.sql(f"SELECT l.name, l.step, l.severity FROM {tables}") == [["T", 2, 17], ["up", 2, 13]]


def test_steps_of_one_second(datadog_hub: DatadogHub) -> None:
    """As many steps as values within a second are paired in order."""
    tags = ["run_id:second"]
    points = [{"timestamp": NOW, "value": value} for value in (7, 8, 9)]
    body = {"series": [{"metric": name, "points": points, "tags": tags} for name in ("a.train.step", "loss")]}
    body["series"].append({"metric": "once", "points": points[:1], "tags": tags})
    assert datadog_hub.post("/api/v2/series", json.dumps(body).encode(), JSON).json() == {"errors": []}
    found = datadog_hub.wait_rows("second", 7)
    assert [row[1:] for row in found if row[0] == "loss"] == [[7, 7], [8, 8], [9, 9]]
    assert [row[1:] for row in found if row[0] == "once"] == [[9, 7]]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "identity"])
def test_compressions(datadog_hub: DatadogHub, encoding: str) -> None:
    """Every compression that Datadog takes is taken."""
    series = {"metric": "m", "points": [[NOW, 1.5]], "tags": [f"run_id:{encoding}"]}
    data = json.dumps({"series": [series]}).encode()
    pack: Any = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress, "identity": bytes}
    answer = datadog_hub.post("/api/v1/series", pack[encoding](data), JSON, content_encoding=encoding)
    assert (answer.status, answer.json()) == (202, {"status": "ok"})
    assert datadog_hub.wait_rows(encoding, 1) == [["m", None, 1.5]]


@pytest.mark.parametrize("path", LOGS)
def test_logs(datadog_hub: DatadogHub, path: str) -> None:
    """Objects, texts and plain lines are logs of their run, with the parameters of the address."""
    run = path.replace("/", "-")
    logs = [
        {"message": "one", "status": "error", "timestamp": NOW * 1000, "ddtags": f"run_id:{run}", "n": {"a": 1}},
        {"message": "two", "train.run.id": run, "train.step": 4, "timestamp": "2026-01-02T03:04:05Z"},
    ]
    assert datadog_hub.post(path, json.dumps(logs).encode(), JSON).json() == {}
    lines = f"{path}?ddtags=run_id:{run}&service=svc&ddsource=py"
    assert datadog_hub.post(lines, b"three\n\nfour\n", "text/plain").json() == {}
    tables = f"logs AS l INNER JOIN runs AS r ON r.run = l.run WHERE r.id = '{run}' ORDER BY l.body"
    wait_for(lambda: len(datadog_hub.sql(f"SELECT l.body FROM {tables}")) == 4)
    found = datadog_hub.sql(f"SELECT l.body, l.step, l.severity FROM {tables}")
    assert found == [["four", None, 9], ["one", None, 17], ["three", None, 9], ["two", 4, 9]]


def test_refusals(datadog_hub: DatadogHub, client: Any) -> None:
    """Errors have the shape that clients read, in part too, and what has no path is not ours."""
    with pytest.raises(ApiError, match="a series that is not an object"):
        client.Metric.send(["no series"], attach_host_name=False)
    partly = {"series": [{"metric": "m", "points": [[NOW, 1], [NOW, "x"], [None, 1]]}, 7]}
    answer = datadog_hub.post("/api/v2/series", json.dumps(partly).encode(), JSON)
    assert (answer.status, answer.json()["errors"]) == (
        202,
        [f"{requests.BAD_POINT} (2)", f"{requests.BAD_SERIES} (1)"],
    )
    logs = datadog_hub.post("/api/v2/logs", b"7", JSON)
    assert (logs.status, list(logs.json()["errors"][0])) == (400, ["status", "title", "detail"])
    protobuf = datadog_hub.post("/api/v2/series", b"\x0a\x00", "application/x-protobuf")
    assert (protobuf.status, "application/json" in protobuf.json()["errors"][0]) == (415, True)
    assert datadog_hub.post("/api/v1/events", b'{"title": "t"}', JSON).status == 400


def test_too_many_tags_are_refused_by_name(datadog_hub: DatadogHub, client: Any) -> None:
    """A series, an event, a check or a log with too many different tags is refused and named; repetitions are one."""
    tags, same = [f"t{n}:1" for n in range(MAX_TAGS + 1)], ["run_id:tagged", *["t:1"] * 80_000]
    points = [{"timestamp": NOW, "value": 1.0}]
    series = [{"metric": "kept", "points": points, "tags": same}, {"metric": "a", "points": points, "tags": tags}]
    answer = datadog_hub.post("/api/v2/series", json.dumps({"series": series}).encode(), JSON)
    assert (answer.status, answer.json()["errors"]) == (202, [f"{TOO_MANY_TAGS} (1)"])
    assert datadog_hub.wait_rows("tagged", 1, "s.key") == [["kept"]]
    for path, body in (
        ("/api/v1/events", {"title": "t", "text": "t", "tags": tags}),
        ("/api/v1/check_run", {"check": "c", "status": 0, "tags": tags}),
        ("/api/v2/logs", [{"message": "m", "ddtags": ",".join(tags)}]),
    ):
        answer = datadog_hub.post(path, json.dumps(body).encode(), JSON)
        assert (answer.status, TOO_MANY_TAGS in str(answer.json())) == (400, True)


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v0.4/traces"), ("PUT", "/v0.5/traces"), ("POST", "/v0.6/stats")]
)
def test_tracers_are_told_where_spans_go(datadog_hub: DatadogHub, method: str, path: str) -> None:
    """The requests of Datadog's tracers are refused with a sentence that names OTLP and its path."""
    answer = datadog_hub.request(method, path, b"\x90", {"content-type": "application/msgpack"})
    (said,) = answer.json()["errors"]
    assert (answer.status, "OTLP" in said, "/v1/traces" in said) == (404, True, True)


def test_the_key_is_the_token(start_guarded: RunningHub) -> None:
    """In a header or a parameter; the path that validates keys says whether it is one."""
    token = IntakeSender(start_guarded).token("ingest")
    valid = start_guarded.request("GET", "/api/v1/validate", None, {"dd-api-key": token})
    assert (valid.status, valid.json()) == (200, {"valid": True})
    assert start_guarded.request("GET", f"/api/v1/validate?api_key={token}").status == 200
    wrong = start_guarded.request("GET", "/api/v1/validate", None, {"dd-api-key": "k" * 32})
    assert (wrong.status, wrong.json()["errors"][0].startswith("Forbidden")) == (403, True)
    datadog.initialize(api_key="wrong", api_host=start_guarded.url, mute=False)
    with pytest.raises(ApiError, match="Forbidden"):
        datadog.api.Metric.send(metric="m", points=(NOW, 1))
