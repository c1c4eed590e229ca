"""The tables of names."""

from stepscope.model.names import STEP_ALIASES
from stepscope.wire.otlp import names as otlp_names


def test_every_alias_of_the_step_is_understood() -> None:
    """All step aliases are recognised, those of the model first, in their order."""
    assert otlp_names.STEPS[: len(STEP_ALIASES)] == STEP_ALIASES


def test_paths_and_methods_cover_every_signal() -> None:
    """HTTP and gRPC alike."""
    assert set(otlp_names.HTTP_PATHS.values()) == set(otlp_names.GRPC_METHODS) == set(otlp_names.SIGNALS)
