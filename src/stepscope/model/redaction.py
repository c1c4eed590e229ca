"""Masking of secrets in values, lists and dicts: by their names, and inside texts."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from stepscope.model.secret_text import LONGEST_NAME, MASK, is_masked, is_secret, looks_secret, mask_shapes, mask_text

_WORD = re.compile(r"\S{1,64}")
"""A word that may be a name."""


def key_text(key: Any) -> Any:
    """Decode a key of bytes, as servers give headers; any other is returned as it is."""
    return key.decode("utf-8", "backslashreplace") if isinstance(key, (bytes, bytearray)) else key


def hides(key: Any) -> bool:
    """Return whether a key of any type names a secret."""
    if type(key) is not str:
        key = key_text(key)
    return isinstance(key, str) and is_secret(key)


def masked(value: Any) -> Any:
    """Mask the value of a secret; one that is masked already, such as `****` or `REDACTED`, is left as it is."""
    if value is None or value is True or value is False or value == "":
        return value
    if isinstance(value, str) and is_masked(value):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) and is_masked(each) for each in value):
        return value
    return MASK


def mask_bytes(value: bytes) -> bytes:
    """Mask the secrets in bytes that are text."""
    text = value.decode("utf-8", "surrogateescape")
    safe = mask_text(text)
    return value if safe is text else safe.encode("utf-8", "surrogateescape")


def mask_list(values: Iterable[Any]) -> list[Any]:
    """Copy a list, masking each element that follows the name of a secret.

    That is the second of a pair, as lists of headers have them, and the value after an option, as in a command line.
    """
    found: list[Any] = []
    option = False
    for inner in values:
        if option and isinstance(inner, str) and not inner.startswith("-"):
            found.append(masked(inner))
        elif isinstance(inner, (list, tuple)) and len(inner) == 2 and _heads_secret(inner[0]):
            found.append((inner[0], masked(inner[1])))
        else:
            found.append(inner)
        option = isinstance(inner, str) and _is_option(inner)
    return found


def _is_option(word: str) -> bool:
    """Return whether a word of a command line is an option whose value, the next word, is a secret."""
    return word.startswith("-") and "=" not in word and ":" not in word and _heads_secret(word.lstrip("-"))


def _heads_secret(first: Any) -> bool:
    """The same for one word; not cached, because the first of a pair may be any text."""
    if not isinstance(first, (str, bytes, bytearray)):
        return False
    name = key_text(first[:LONGEST_NAME])
    return _WORD.fullmatch(name) is not None and looks_secret(name)


def safe_key(key: Any) -> Any:
    """Mask the secrets in a key that is a text, as where addresses are counted."""
    return mask_text(key) if isinstance(key, str) else mask_bytes(key) if isinstance(key, bytes) else key


LONGEST_NAMED = 256
"""Characters of a text of a sample in which the names of secrets are searched too."""


def mask_data(text: str) -> str:
    """Mask the secrets in a text that is data of a sample; in a long one, those that are known by their shape."""
    return mask_text(text) if len(text) <= LONGEST_NAMED else mask_shapes(text)


def redact(value: Any, mask: Callable[[str], str] = mask_text) -> Any:
    """Copy nested dicts and lists with every secret in them masked, those inside texts by `mask`."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {safe_key(key): masked(inner) if hides(key) else redact(inner, mask) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(inner, mask) for inner in mask_list(value)]
    return mask_bytes(value) if isinstance(value, bytes) else value
