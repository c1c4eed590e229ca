"""The walks of docs/architecture.md are what running programs execute: no file more, no file less."""

import re
from pathlib import Path

import pytest

from tests.dialects.mlflow.server_peer import MlflowServer
from tests.harness import walks

MAX_FILES = {walks.SERIES: 45, walks.INSPECTOR: 53, walks.MLFLOW: 24}
"""The numbers may only shrink."""


def compare(title: str, executed: list[str]) -> None:
    """Fail unless the document lists exactly the executed files, and not too many of them."""
    count, listed = walks.documented(title)
    assert set(executed) - set(walks.SOMETIMES[title]) - set(listed) == set(), "executed, and not in the document"
    assert set(listed) - set(executed) == set(), "in the document, and not executed"
    assert count == len(listed) == len(set(listed)) <= MAX_FILES[title]


def test_from_log_to_the_series_of_a_chart() -> None:
    """A value that a trainer logs, until a hub answers what the page draws."""
    compare(walks.SERIES, walks.log_to_series())


def test_from_an_otlp_span_to_the_step_inspector() -> None:
    """A span that OpenTelemetry's own exporter sends, until a hub answers what the inspector shows."""
    compare(walks.INSPECTOR, walks.otlp_to_inspector())


def test_from_a_record_to_mlflow(mlflow_server: MlflowServer) -> None:
    """A journaled record, until a real MLflow server has it."""
    compare(walks.MLFLOW, walks.record_to_mlflow(f"http://127.0.0.1:{mlflow_server.port}"))


@pytest.mark.parametrize("change", [lambda files: files[1:], lambda files: [*files, "sdk/gone.py"]])
def test_a_list_with_a_file_more_or_less_fails(
    change: "object", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Cutting the list in the document, or adding to it, is noticed."""
    _, listed = walks.documented(walks.SERIES)
    text = walks.PAGE.read_text()
    wrong = change(listed)
    body = "\n".join(f"{number}. `{file}`: x" for number, file in enumerate(wrong, 1))
    section = re.compile(rf"(?ms)^### {re.escape(walks.SERIES)} .*?(?=^##)")
    page = tmp_path / "page.md"
    page.write_text(section.sub(f"### {walks.SERIES} ({len(wrong)} files)\n\n{body}\n\n", text))
    monkeypatch.setattr(walks, "PAGE", page)
    with pytest.raises(AssertionError):
        compare(walks.SERIES, listed)
