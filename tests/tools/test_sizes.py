"""Wrong names and overlong lines are found, long files and functions are listed, and the rest is left alone."""

from pathlib import Path

import pytest

from tools import sizes


def found(root: Path, name: str, text: str) -> list[str]:
    """Write one file under root and return the messages about it."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return sizes.judge_all(root)[0]


def advised(root: Path, name: str, text: str) -> list[str]:
    """Write one file under root, which has no problem, and return the advice about it."""
    assert found(root, name, text) == []
    return sizes.judge_all(root)[1]


@pytest.mark.parametrize(
    "name", ["src/a.py", "tests/a.py", "tools/a.sh", "benchmarks/a.py", "src/w/a.js", "src/w/a.css"]
)
def test_a_file_of_more_than_400_lines_is_listed(tmp_path: Path, name: str) -> None:
    """In every folder of code, and the page's files too; it is advice, no failure."""
    assert advised(tmp_path, name, "\n" * 400) == []
    assert advised(tmp_path, name, "\n" * 401) == [f"{name} has 401 lines"]


@pytest.mark.parametrize(
    "name", ["src/vendor/a.js", "tools/page/node_modules/a.js", "src/.cache/a.py", "src/data.json", "docs/a.py"]
)
def test_what_is_not_our_code_is_not_measured(tmp_path: Path, name: str) -> None:
    """Vendored files, caches, data and other folders may be of any length."""
    assert advised(tmp_path, name, "\n" * 500) == []


@pytest.mark.parametrize("name", ["src/w/a.js", "src/w/a.css"])
def test_a_line_of_the_page_may_have_140_characters_and_no_more(tmp_path: Path, name: str) -> None:
    """Long lines of JavaScript and CSS are named with their numbers."""
    assert found(tmp_path, name, "x" * 140) == []
    assert found(tmp_path, name, "\n" + "x" * 141) == [f"{name}:2 has 141 characters, more than 140"]


@pytest.mark.parametrize("start", ["def work():\n", "async def work():\n"])
def test_a_function_of_more_than_60_lines_is_listed(tmp_path: Path, start: str) -> None:
    """The lines of a function are counted from its def to its end."""
    assert advised(tmp_path, "src/a.py", start + "    x = 1\n" * 59) == []
    assert advised(tmp_path, "src/a.py", start + "    x = 1\n" * 60) == ["src/a.py:1: work has 61 lines"]


def test_a_class_may_be_longer_than_a_function(tmp_path: Path) -> None:
    """The function limit applies to the methods of a class, not to the class."""
    assert advised(tmp_path, "src/a.py", "class Long:\n" + "    x = 1\n" * 100) == []


@pytest.mark.parametrize("name", ["RunManager", "path_helpers", "utils", "HTTPHandler", "_common", "SinkBase"])
def test_names_that_say_nothing_are_refused(tmp_path: Path, name: str) -> None:
    """A class, a function, a module and a package are each refused such a name."""
    for code in (f"class {name}: ...\n", f"def {name}(): ...\n", f"class Ok:\n    def {name}(self): ...\n"):
        assert len(found(tmp_path, "src/a.py", code)) == 1
    (tmp_path / "src/a.py").unlink()
    assert len(found(tmp_path, f"src/{name}.py", "")) == 1
    (tmp_path / f"src/{name}.py").unlink()
    assert len(found(tmp_path, f"src/{name}/__init__.py", "")) == 1


@pytest.mark.parametrize("name", ["database", "Baseline", "rebase", "uncommon", "handle", "base64"])
def test_names_that_only_look_alike_are_free(tmp_path: Path, name: str) -> None:
    """Whole words are compared, not letters."""
    assert found(tmp_path, f"src/{name}.py", f"def {name}(): ...\n") == []


@pytest.mark.parametrize(
    "code",
    [
        "import logging\nclass JournalHandler(logging.Handler): ...\n",
        "import logging.handlers\nclass JournalHandler(logging.handlers.QueueHandler): ...\n",
        "from logging import Handler as Parent\nclass JournalHandler(Parent): ...\n",
    ],
)
def test_logging_handlers_may_be_called_so(tmp_path: Path, code: str) -> None:
    """A subclass of one of logging's handlers keeps logging's word."""
    assert found(tmp_path, "src/a.py", code) == []


def test_a_handler_of_anything_else_may_not(tmp_path: Path) -> None:
    """Only subclasses of logging's handlers may use the word."""
    assert len(found(tmp_path, "src/a.py", "import logging\nclass EventHandler(Event): ...\n")) == 1


def test_a_test_may_name_what_it_tests(tmp_path: Path) -> None:
    """The name of a test is a sentence about something else."""
    assert found(tmp_path, "tests/test_a.py", "def test_handlers_stay_untouched(): ...\n") == []


def test_main_fails_only_when_something_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is what make looks at; advice alone does not fail."""
    assert sizes.main(tmp_path) == 0
    assert capsys.readouterr().out == ""
    advised(tmp_path, "src/a.py", "\n" * 401)
    assert sizes.main(tmp_path) == 0
    assert capsys.readouterr().out == "advice: src/a.py has 401 lines; is there a noun to split by?\n"
    (tmp_path / "src/a.py").unlink()
    found(tmp_path, "src/utils.py", "")
    assert sizes.main(tmp_path) == 1
    assert capsys.readouterr().out == "src/utils.py is called 'utils', which says nothing\n"
