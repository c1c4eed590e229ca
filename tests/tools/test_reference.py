"""The reference is what the sources say: every public name with its arguments, and every endpoint."""

import pytest

pytest.importorskip("chdb", reason="the endpoints are those of a hub")

import stepscope
from stepscope.hub.questions.openapi import ENDPOINTS
from tools import reference


def test_the_page_is_current() -> None:
    """docs/reference.md is what the tool writes."""
    assert reference.PAGE.read_text() == reference.page(), "run python tools/reference.py"


def test_everything_public_is_described() -> None:
    """Every public name has an entry with words, and every endpoint with its parameters."""
    text = reference.PAGE.read_text()
    for name in stepscope.__all__:
        assert f"### `stepscope.{name}`\n\n" in text
    assert "```\nrun.span(name: str | None=None, /, **attrs: Any)" in text
    for endpoint in ENDPOINTS:
        assert f"### `{endpoint.method} {endpoint.path}`\n\n{endpoint.text}\n" in text
        assert all(f"| `{param.name}` |" in text for param in endpoint.params)


def test_long_calls_have_a_line_for_each_argument() -> None:
    """Commas within brackets do not part arguments."""
    text = reference.PAGE.read_text()
    assert "stepscope.init(\n    project: str | None=None,\n    name: str | None=None,\n" in text
    assert "\n    tags: Iterable[str] | Mapping[str, Any] | str | None=None,\n" in text
