"""The YAML loader: what it costs is bounded by the size of the text."""

import ast
import time
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

from stepscope.hub.dashboards.dashboard import Mistake, parse  # noqa: E402
from stepscope.wire import yaml_text  # noqa: E402

SOURCE = Path(yaml_text.__file__).parents[1]
DEEP = {
    "lists": "[" * 4000,
    "mappings": "{" * 4000,
    "both": "[{a: " * 1000,
    "in a key": "a: " + "[" * 4000 + "]" * 4000,
    "dashes": "- " * 4000 + "a",
    "questions": "? " * 4000 + "a",
    "indented": "".join("  " * depth + "a:\n" for depth in range(200)),
}


@pytest.mark.parametrize("text", DEEP.values(), ids=list(DEEP))
def test_depth_is_refused_early(text: str) -> None:
    """A text that is nested deeply is refused at once, by settings and by dashboards."""
    began = time.thread_time()
    with pytest.raises(yaml.YAMLError, match="nested too deeply"):
        yaml_text.load(text)
    with pytest.raises(Mistake, match="nested too deeply"):
        parse(text)
    assert time.thread_time() - began < 2


@pytest.mark.parametrize("text", ["a: 2024-99-99", "a: " + "9" * 5000, "a: [", "\0", "a" * (yaml_text.LONGEST + 1)])
def test_one_error(text: str) -> None:
    """All mistakes raise one kind of error."""
    with pytest.raises(yaml.YAMLError):
        yaml_text.load(text)


@pytest.mark.parametrize("text", ['a: "\\ud800"', '"\\ud800": 1', '[b, "\\uDFFF"]'])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    """An escape of a character that UTF-8 cannot encode is an error with its place, not one where the text is used."""
    with pytest.raises(yaml.YAMLError, match="cannot be written as UTF-8"):
        yaml_text.load(text)
    with pytest.raises(Mistake, match="cannot be written as UTF-8"):
        parse(f"title: {text}" if text.startswith("[") else text)


def test_usual_texts() -> None:
    """What people write is read as by PyYAML."""
    text = "telemetry:\n  sinks: [console, {otlp: {endpoint: 'http://c:4318'}}]\n  a: &x [1, 2.5]\n  b: *x\n"
    assert yaml_text.load(text) == yaml.safe_load(text)


def test_nothing_reads_yaml_otherwise() -> None:
    """No other module of ours calls a loader of PyYAML."""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py") if path.name != "yaml_text.py"}
    named = {path: text for path, text in texts.items() if "yaml" in text}
    assert named
    for path, text in named.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml":
                assert node.attr not in ("safe_load", "load", "full_load", "unsafe_load", "safe_load_all"), path
