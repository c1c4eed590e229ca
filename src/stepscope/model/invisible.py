"""Characters that cannot be seen or that change the order of others, escaped, so that no text looks like another one.

The page does the same: `hub/web/parts/invisible.js`.
"""

import re

_SYMBOLS = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff"
"""Characters that a variation selector draws as an emoji or as text."""
_LATER = "[^\x00-\u02ff]"
"""A character of a script in which joiners have a meaning, or an emoji."""
_FOUND = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
    f"|(?<!{_LATER})[\u200c\u200d]|[\u200c\u200d](?!{_LATER})|(?<![{_SYMBOLS}])[\ufe0e\ufe0f](?!\u20e3)"
)


def escape_invisible(text: str) -> str:
    r"""Replace what cannot be seen by its number, as in `\u202e`; line ends, tabs and emojis stay as they are."""
    return text if text.isascii() and text.isprintable() else _FOUND.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\u{number:04x}" if number < 0x10000 else f"\\u{{{number:x}}}"
