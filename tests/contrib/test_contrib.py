"""A suite of OpenTelemetry's own that is small enough to run each time; `python -m tests.contrib` runs them all."""

import sys
from pathlib import Path

import pytest

from tests.contrib.__main__ import run, source_of


def test_the_suite_of_asgi_passes_with_our_providers(tmp_path: Path) -> None:
    """Middleware spans, metrics, headers, propagation, exemplars: what holds with the SDK holds with ours."""
    pytest.importorskip("opentelemetry.test.test_base", reason="opentelemetry-test-utils is not installed")
    source = source_of("asgi")
    if not source.exists():
        pytest.skip("the sources are not here: python -m tests.contrib --fetch asgi")
    found = run(sys.executable, source, tmp_path / "report.xml", "-p", "adapter", "-p", "asgi_timing")
    assert len(found) > 80
    assert [name for name, passed in found.items() if not passed] == []
