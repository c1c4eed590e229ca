"""The OpenAPI document says what the API does: schemathesis asks everything it describes."""

import re
from typing import Any

import hypothesis
import pytest

from stepscope.hub.questions.openapi import ENDPOINTS, schemas
from stepscope.hub.questions.toolbox.endpoint import Endpoint
from tests.hub.questions.conftest import Get
from tests.late import late
from tests.repeats import repeats

schemathesis = late("schemathesis")


def test_every_endpoint_is_described(get: Get, app: Any) -> None:
    """Each endpoint, and the stream, is in the document with its parameters, and each has a name of its own."""
    found = get("/api/openapi.json")
    described = {
        (path, method): operation for path, methods in found["paths"].items() for method, operation in methods.items()
    }
    expected = {(endpoint.path, endpoint.method.lower()) for endpoint in ENDPOINTS}
    assert set(described) == expected | {("/api/live", "get")}
    assert len({operation["operationId"] for operation in described.values()}) == len(described)
    for endpoint in ENDPOINTS:
        names = {param["name"] for param in described[endpoint.path, endpoint.method.lower()]["parameters"]}
        assert names >= {param.name for param in endpoint.params}


def test_every_answer_has_a_type_with_fields(get: Get) -> None:
    """The document is made from the annotations of the answers: each is a type with fields, or a file."""
    parts = get("/api/openapi.json")["components"]["schemas"]
    _, answers, _ = schemas(ENDPOINTS)
    files = {endpoint.path for endpoint, answer in zip(ENDPOINTS, answers, strict=True) if "$ref" not in answer}
    assert files == {"/api/runs/{run}/export", "/api/runs/{run}/files/content", "/api/spans/export"}
    for name, part in parts.items():
        assert re.fullmatch("[A-Z][A-Za-z]+", name), "two types have one name"
        assert part["properties"]
        assert part["additionalProperties"] is False
        assert part["description"].rstrip().endswith(".")


def test_only_what_reads_may_be_partial(get: Get) -> None:
    """An answer of the store may lack shards; one to a change never does."""
    parts = get("/api/openapi.json")["components"]["schemas"]
    assert "partial" in parts["RunPage"]["properties"]
    assert "partial" not in parts["RunPage"]["required"]
    assert not {"partial"} & {*parts["EditedRun"]["properties"], *parts["RunJson"]["properties"]}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_answers_are_as_described(app: Any, get: Get, endpoint: Endpoint) -> None:
    """Whatever the document allows is answered without a server error and in the described shape."""
    document = get("/api/openapi.json")
    document["paths"] = {
        endpoint.path: {endpoint.method.lower(): document["paths"][endpoint.path][endpoint.method.lower()]}
    }
    _make_known(document)
    schema = schemathesis.openapi.from_dict(document)
    schema.app = app
    (result,) = schema.get_all_operations()
    _fuzz(result.ok())


def _make_known(document: dict[str, Any]) -> None:
    """Let the fuzzer meet runs and traces that exist."""
    known = {
        "run": ["big", "again", "small-3", "none"],
        "key": ["trainer/loss", "trainer/lr"],
        "step": [0, 70, 90, 119],
    }
    for methods in document["paths"].values():
        for operation in methods.values():
            for param in operation["parameters"]:
                if param["name"] in known and param["schema"]["type"] != "array":
                    param["schema"] = {"enum": known[param["name"]]}


SECONDS = 300
"""How long an answer may take: on a busy machine longer than the fuzzer's own 10 seconds."""
OWN_WORDS = (
    *("/api/runs", "/api/series", "/api/runs/{run}/series", "/api/runs/{run}/quantiles", "/api/sql"),
    *("/api/spans/lanes", "/api/spans/export", "/api/spans/import", "/api/dashboards/{name}"),
    *("/api/alerts/rules", "/api/alerts/preview"),
)
"""Endpoints whose texts have a grammar of their own, which a schema does not know."""


def _fuzz(operation: Any) -> None:
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    left_out = [positive_data_acceptance] if operation.path in OWN_WORDS else []

    @hypothesis.given(case=operation.as_strategy())
    @hypothesis.settings(
        max_examples=repeats(5, 100),
        phases=[hypothesis.Phase.generate],
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def ask(case: Any) -> None:
        response = case.call(base_url="http://127.0.0.1:4318", timeout=SECONDS)
        assert response.status_code < 500, response.text
        case.validate_response(response, excluded_checks=left_out)

    ask()
