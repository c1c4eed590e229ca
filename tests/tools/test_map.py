"""The map is generated from the modules, in pipeline order, and a stale one is refused."""

from pathlib import Path

import pytest

from tools import map as mapping

TREE = {
    "src/stepscope/__init__.py": '"""The whole public API."""\n',
    "src/stepscope/pump.py": '"""Move batches. Never twice."""\n',
    "src/stepscope/cli/__init__.py": '"""One file per command."""\n',
    "src/stepscope/extra/__init__.py": '"""Not in the pipeline."""\n',
    "src/stepscope/hub/__init__.py": '"""Receive and show."""\n',
    "src/stepscope/hub/store/__init__.py": '"""Keep."""\n',
    "src/stepscope/model/__init__.py": '"""The words."""\n',
    "src/stepscope/model/records.py": '"""The five kinds of record,\nas data.\n\nMore.\n"""\n',
    "tools/links.py": '"""Find dead links"""\n',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a small project."""
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One thing.", "One thing."),
        ("One thing. And another.", "One thing."),
        ("Broken\nover lines.\n\nMore.", "Broken over lines."),
        ("Reads v1.2 files. `x` too.", "Reads v1.2 files."),
        ("No full stop", "No full stop"),
    ],
)
def test_first_sentence_is_taken_whole(docstring: str, sentence: str) -> None:
    """The sentence ends at its full stop, not at a dot inside a word and not at a line end."""
    assert mapping.first_sentence(f'"""{docstring}"""') == sentence


def test_folders_come_in_pipeline_order(tree: Path) -> None:
    """The map reads as a record travels, with unknown folders and the tools at the end."""
    headings = [line[3:] for line in mapping.render(tree).splitlines() if line.startswith("## ")]
    inside = [f"src/stepscope/{name}" for name in ("model", "hub", "hub/store", "cli", "extra")]
    assert headings == ["src/stepscope", *inside, "tools"]


def test_every_module_has_its_line(tree: Path) -> None:
    """A module is a link with its sentence; a folder's own sentence stands under its name."""
    text = mapping.render(tree)
    assert "- [`pump.py`](src/stepscope/pump.py): Move batches.\n" in text
    assert "- [`records.py`](src/stepscope/model/records.py): The five kinds of record, as data.\n" in text
    assert "## src/stepscope/model\n\nThe words.\n\n- [" in text


def test_a_fresh_map_passes_and_a_stale_one_fails(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` fails before the map exists and after a module changes, and writes nothing."""
    assert mapping.main(["--check"], tree) == 1
    assert not (tree / "MAP.md").exists()
    assert mapping.main([], tree) == 0
    assert mapping.main(["--check"], tree) == 0
    (tree / "src/stepscope/pump.py").write_text('"""Move batches once."""\n')
    before = (tree / "MAP.md").read_text()
    assert mapping.main(["--check"], tree) == 1
    assert "stale" in capsys.readouterr().out
    assert (tree / "MAP.md").read_text() == before


def test_a_module_without_a_docstring_is_refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A module that does not say what it is cannot be on the map."""
    (tree / "src/stepscope/model/silent.py").write_text("x = 1\n")
    assert mapping.main([], tree) == 1
    assert "src/stepscope/model/silent.py" in capsys.readouterr().out
