"""How many columns of a terminal a text takes: two for wide characters and emojis, none for marks on others."""

import re
import unicodedata

_JOINER, _AS_EMOJI = "\u200d", "\ufe0f"
_PLAIN = re.compile("[\x00-\u02ff\u2010-\u20cf\u2100-\u22ff\u2500-\u25fc\u2800-\u28ff]*")
"""Characters of one column, but for marks that `escape_invisible` has replaced."""
_PIECE = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}"
    f"|.[\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff]*(?:{_JOINER}.[\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]*)*",
    re.DOTALL,
)


def columns_of(text: str) -> int:
    """Count the columns of a text without control characters."""
    return len(text) if _PLAIN.fullmatch(text) else sum(map(_columns, pieces(text)))


def pieces(text: str) -> list[str]:
    """Split a text where it may be cut: an emoji of several characters stays whole."""
    return _PIECE.findall(text)


def _columns(piece: str) -> int:
    first = piece[0]
    if len(piece) > 1 and (_AS_EMOJI in piece or _JOINER in piece or not unicodedata.category(first).startswith("L")):
        return 2
    if unicodedata.category(first) in ("Mn", "Me", "Cf") or "\u1160" <= first <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(first) in "WF" else 1
