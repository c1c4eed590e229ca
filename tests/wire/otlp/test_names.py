"""Content types and the tables of names."""

import pytest

from stepscope.model.names import STEP_ALIASES
from stepscope.wire.otlp import names as otlp_names


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        ("application/x-protobuf", "protobuf"),
        ("application/json", "json"),
        ("application/json; charset=utf-8", "json"),
        ("Application/JSON;charset=UTF-8", "json"),
        (" application/x-protobuf ;x=y", "protobuf"),
        ("", None),
        ("text/plain", None),
        ("application/jsonl", None),
        ("application/grpc", None),
    ],
)
def test_the_media_type_decides(content_type: str, encoding: str | None) -> None:
    """Parameters and case do not."""
    assert otlp_names.encoding_of(content_type) == encoding


def test_every_alias_of_the_step_is_understood() -> None:
    """All step aliases are recognised, those of the model first, in their order."""
    assert otlp_names.STEPS[: len(STEP_ALIASES)] == STEP_ALIASES


def test_paths_and_methods_cover_every_signal() -> None:
    """HTTP and gRPC alike."""
    assert set(otlp_names.HTTP_PATHS.values()) == set(otlp_names.GRPC_METHODS) == set(otlp_names.SIGNALS)
