"""Find dead relative links and anchors in the project's Markdown."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = {"build", "dist", "node_modules", "vendor"}

# A block of code that is never closed goes on to the end; a span of code stays within its paragraph.
FENCE = re.compile(r"^ {0,3}(```+|~~~+)(?s:.*?)(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE)
CODE = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n\s*\n)(?s:.))*?(?<!`)\1(?!`)")
INLINE = re.compile(r"\]\(\s*(?:<([^>\n]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s+[\"'(][^)]*)?\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]+\]:\s*<?([^\s>]+)>?", re.MULTILINE)
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)[\"']")
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t#]*$", re.MULTILINE)
ANCHOR = re.compile(r"<[^>]*\b(?:id|name)=[\"']([^\"']+)[\"']")
OUTSIDE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//")


def blank(match: re.Match[str]) -> str:
    """Replace text by as many line ends as it has, so that line numbers stay right."""
    return "\n" * match[0].count("\n")


def targets(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the target of each link outside code."""
    prose = CODE.sub(blank, FENCE.sub(blank, text))
    for pattern in (INLINE, REFERENCE, HTML):
        for match in pattern.finditer(prose):
            target = next(group for group in match.groups() if group is not None)
            yield prose.count("\n", 0, match.start()) + 1, target


def anchors(text: str) -> set[str]:
    """Return the anchors of a page as GitHub makes them: from headings, and those set by hand."""
    prose = FENCE.sub(blank, text)
    found = set(ANCHOR.findall(prose))
    seen: dict[str, int] = {}
    for heading in HEADING.findall(prose):
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def is_dead(target: str, page: Path, root: Path) -> bool:
    """Tell whether a target leads nowhere; addresses outside the project are not followed."""
    if OUTSIDE.match(target):
        return False
    name, _, anchor = unquote(target).partition("#")
    start = root if name.startswith("/") else page.parent
    place = (start / name.lstrip("/")).resolve() if name else page
    if not place.is_relative_to(root) or not place.exists():
        return True
    return bool(anchor) and place.suffix == ".md" and anchor not in anchors(place.read_text(encoding="utf-8"))


def pages(root: Path) -> Iterator[Path]:
    """Yield the Markdown files under root, leaving out hidden folders and what others wrote."""
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if name not in SKIPPED and not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".md"))


def main(root: Path = ROOT) -> int:
    """Print every dead link and fail when there is one."""
    dead = [
        f"{page.relative_to(root)}:{line}: dead link {target}"
        for page in pages(root)
        for line, target in sorted(targets(page.read_text(encoding="utf-8")))
        if is_dead(target, page, root)
    ]
    print(*dead, sep="\n", end="\n" if dead else "")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
