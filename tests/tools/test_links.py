"""Dead relative links and anchors are found wherever Markdown allows a link."""

from pathlib import Path

import pytest

from tools import links

GUIDE = """# The Guide

## Set up: `make`, and more!

## Notes

## Notes

<a id="by-hand"></a>

```sh
# not a heading
```
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a project with one good page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/guide.md").write_text(GUIDE)
    (tmp_path / "docs/with space.md").write_text("")
    return tmp_path


def complaints(root: Path, text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the messages for a page at docs/page.md, after checking the exit status."""
    (root / "docs/page.md").write_text(text)
    status = links.main(root)
    lines = capsys.readouterr().out.splitlines()
    assert status == (1 if lines else 0)
    return lines


@pytest.mark.parametrize(
    "text",
    [
        "[a](guide.md) ![b](guide.md 'title') [![c](guide.md)](guide.md)",
        "[a](../docs/guide.md) [b](/docs/guide.md) [c](..) [d](<with space.md>) [e](with%20space.md)",
        "[a](guide.md#the-guide) [b](guide.md#set-up-make-and-more)",
        "[a](guide.md#notes) [b](guide.md#notes-1) [c](guide.md#by-hand)",
        "# Here\n\n[a](#here)",
        "[a][ref]\n\n[ref]: guide.md",
        "<a href='guide.md'>a</a> <img src=\"guide.md\">",
        "[a](https://example.org/gone.md) [b](mailto:a@example.org) [c](//example.org/x)",
        "`[a](gone.md)` and ``[b](`gone.md`)``",
        "```\n[a](gone.md)\n```",
        "~~~~md\n[a](gone.md)\n~~~~\n",
        "```\nnever closed [a](gone.md)",
    ],
)
def test_good_links_pass(root: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Links that lead somewhere, addresses outside, and what is only code are left alone."""
    assert complaints(root, text, capsys) == []


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("[a](gone.md)", "gone.md"),
        ("![a](gone.png 'title')", "gone.png"),
        ("[a](<gone away.md>)", "gone away.md"),
        ("[a](/guide.md)", "/guide.md"),
        ("[a](../../outside.md)", "../../outside.md"),
        ("[a](guide.md#nowhere)", "guide.md#nowhere"),
        ("[a](guide.md#notes-2)", "guide.md#notes-2"),
        ("[a](guide.md#not-a-heading)", "guide.md#not-a-heading"),
        ("[a](#nowhere)", "#nowhere"),
        ("[ref]: gone.md", "gone.md"),
        ("<img src='gone.png'>", "gone.png"),
        ("a stray ` tick\n\n[a](gone.md)\n\nand ` another", "gone.md"),
        ("```\ncode\n```\n[a](gone.md)\n```\ncode\n```", "gone.md"),
    ],
)
def test_dead_links_are_found(root: Path, text: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each form of link is followed, and code before and after hides nothing between."""
    assert [line.partition(" ")[2] for line in complaints(root, text, capsys)] == [f"dead link {target}"]


def test_the_line_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A complaint says where to look, also below a block of code."""
    said = complaints(root, "one\n```\ntwo\n```\n[a](gone.md)\n", capsys)
    assert said == ["docs/page.md:5: dead link gone.md"]


@pytest.mark.parametrize("folder", [".venv", "docs/.cache", "node_modules", "src/web/vendor"])
def test_what_others_wrote_is_not_read(root: Path, folder: str) -> None:
    """Environments, caches and vendored code may hold dead links."""
    (root / folder).mkdir(parents=True)
    (root / folder / "a.md").write_text("[a](gone.md)")
    assert links.main(root) == 0
