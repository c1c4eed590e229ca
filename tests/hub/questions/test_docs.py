"""The page about the API names every endpoint and every parameter."""

from pathlib import Path

import pytest

from stepscope.hub.questions.live_events import PARAMS
from stepscope.hub.questions.openapi import ENDPOINTS
from stepscope.hub.questions.runs.run_fields import FIELDS
from stepscope.hub.questions.toolbox.endpoint import Endpoint

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_endpoint_is_on_the_page(endpoint: Endpoint) -> None:
    """Path and parameters are written there."""
    assert f"{endpoint.method} {endpoint.path}" in PAGE
    missing = [param.name for param in endpoint.params if param.place == "query" and f"`{param.name}" not in PAGE]
    assert not missing


def test_fields_and_the_stream_are_on_the_page() -> None:
    """What runs can be picked by, and what a stream takes, is written there too."""
    assert [field for field in FIELDS if f"`{field}`" not in PAGE] == []
    assert [param.name for param in PARAMS if f"`{param.name}`" not in PAGE] == []
