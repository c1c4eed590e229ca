"""The reference is what the sources say: every public name with its arguments, and every endpoint."""

import pytest

pytest.importorskip("tests.chdb", reason="the endpoints are those of a hub")

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


def test_answers_are_described_by_their_types() -> None:
    """Every endpoint names the type of its answer, which has a table of its fields."""
    text = reference.PAGE.read_text()
    page = text.partition("### `GET /api/runs`\n")[2].partition("\n### ")[0]
    assert "\nIt answers with [`RunPage`](#runpage).\n" in page
    shape = text.partition("### `RunPage`\n\nThe runs that match a filter.\n")[2].partition("\n### ")[0]
    assert "\n| `runs` | list of [`RunJson`](#runjson) |  |\n" in shape
    assert "\n| `next` | string or null | The `cursor` of the next page; null after the last. |" in shape
    assert "\n| `value` | number or null | The measured value; a duration in seconds. |\n" in text
    assert "\nIt takes [`SqlRequest`](#sqlrequest) and answers with [`SqlAnswer`](#sqlanswer).\n" in text


def test_long_calls_have_a_line_for_each_argument() -> None:
    """Commas within brackets do not part arguments."""
    text = reference.PAGE.read_text()
    assert "stepscope.init(\n    project: str | None=None,\n    name: str | None=None,\n" in text
    assert "\n    tags: Iterable[str] | Mapping[str, Any] | str | None=None,\n" in text
