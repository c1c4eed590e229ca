"""The texts of the page: htm drops the end of a line beside an element, and with it the space between two words."""

import re
from pathlib import Path

import stepscope.hub

WEB = Path(stepscope.hub.__file__).parent / "web"
INLINE = "code|a|b|strong|em|kbd|small"
BEFORE = re.compile(rf"[a-z,;:]\n\s*<(?:{INLINE})\b")
AFTER = re.compile(rf"</(?:{INLINE})>\n\s*[a-z(]\w* ")


def joined(source: str) -> list[str]:
    """The places where a word and an element stand on lines of their own, with no space on the page."""
    return [found[0] for pattern in (BEFORE, AFTER) for found in pattern.finditer(source)]


def test_no_word_is_joined_to_the_element_beside_it() -> None:
    """A space there is written as an expression."""
    assert joined("made by\n  <code>x</code>\n  under it") != []
    assert joined("made by${' '}\n  <code>x</code>${' '}\n  under it") == []
    sources = {path: path.read_text() for path in WEB.rglob("*.js") if "vendor" not in path.parts}
    assert {str(path.relative_to(WEB)): found for path, text in sources.items() if (found := joined(text))} == {}
